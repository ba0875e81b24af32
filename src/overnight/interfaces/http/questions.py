"""Questions about many hosts."""

from __future__ import annotations

import fastapi

ROUTER = fastapi.APIRouter(prefix="/api/v1/questions", tags=["questions"])
