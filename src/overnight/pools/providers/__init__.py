"""Where machines come from: one module a provider, with NAME and `create(home)`."""
