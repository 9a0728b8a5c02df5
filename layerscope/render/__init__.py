"""The only part that makes text or pictures of what was measured."""
