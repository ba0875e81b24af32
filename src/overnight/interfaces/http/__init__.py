"""The HTTP interface: `/api/v1` for people, tools and agents, `/v1` for pool members, and pages.

Each operation translates a use case of `app`. Errors are problem documents (`problems`).
"""
