"""The self-test: pairs of arms with a planted cause, which the ledger must find."""
