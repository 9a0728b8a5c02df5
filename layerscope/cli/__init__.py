"""The command line: one small file a command, over the library's own functions."""
