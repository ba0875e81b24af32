"""From findings to a verdict: what caused what, how sure that is, and what would prove it.

What explains what is data (`knowledge.toml`); the arithmetic of evidence is code.
"""
