"""Lets ``python -m layerscope`` do what the command ``layerscope`` does."""

import sys

if __name__ == "__main__":
    try:
        from layerscope.cli.main import entry_point
    except ModuleNotFoundError as error:  # a checkout that was never installed
        sys.exit(f"error: layerscope needs {error.name}; pip install . in its checkout")
    entry_point()
