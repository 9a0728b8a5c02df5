"""Lets ``python -m layerscope`` do what the command ``layerscope`` does."""

from layerscope.cli.main import entry_point

if __name__ == "__main__":
    entry_point()
