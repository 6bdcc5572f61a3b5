"""The pipelines behind the verbs plan, apply and run."""
