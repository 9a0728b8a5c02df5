"""Pure functions on frames: from recorded times to shares, estimates and verdicts."""
