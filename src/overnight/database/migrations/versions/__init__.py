"""One module a step; never changed once released: tests/contract/test_schema.py has digests of what each creates."""
