"""The concierge: use cases of `app` as tools, prompts and resources of the Model Context Protocol.

`overnight mcp` serves it over stdio, `overnight serve` at /mcp. A tool is a row of a table (`pool_tools`, `fleet_tools`,
`night_tools`): the operation or question, the translation of its fields (`vocabulary`), its types and its annotations.
"""
