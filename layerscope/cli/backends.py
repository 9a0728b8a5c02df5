"""``layerscope backends``: every backend, what it offers, and whether it fits here."""

from dataclasses import dataclass

from layerscope.cli.options import Json, LayerOptions, takes


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendsOptions(LayerOptions):
    """``layerscope backends`` as typed."""

    json: Json = False


@takes(BackendsOptions)
def command(options: BackendsOptions, _: list[str]) -> None:
    """List the installed backends, and check them against a layer."""
    from layerscope.cli.needs import need_torch

    need_torch("backends")

    from layerscope.catalog import backends_report
    from layerscope.cli.output import print_report
    from layerscope.cli.plan import layer
    from layerscope.graphs.device import facts, resolve

    device = resolve(options.device)
    spec, _folder = layer(options, device)
    print_report(backends_report(spec, facts(device)), as_json=options.json)
