"""What one replay runs."""

from collections.abc import Callable

from layerscope.graphs.replay import Body
from layerscope.regions import Region, layer_pass, region
from layerscope.runner.workload import FirstWorkload


def body_of(workload: FirstWorkload, head: Callable[[], None], arm: str) -> Body:
    """What one replay of `arm` runs: the head, then the passes by region."""

    def play(passes: int) -> None:
        with region(Region.OTHER):
            head()
        for index in range(passes):
            with layer_pass(index):
                workload.run_pass(arm, index, passes)

    return play
