"""What a notebook, or any Python session, is given: values that show themselves.

Each is the plain value of the same name, which every function of layerscope takes, with
what only people need: charts, and a picture of itself in HTML.
"""

from layerscope.notebook.comparison import Comparison
from layerscope.notebook.run import Run, load
from layerscope.notebook.timeline import Timeline
from layerscope.notebook.traces import load_trace

__all__ = ["Comparison", "Run", "Timeline", "load", "load_trace"]
