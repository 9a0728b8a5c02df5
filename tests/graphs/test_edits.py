from layerscope.experiment import ALL, PASSES, SERIAL, Experiment
from layerscope.graphs.edits import (
    Allowed,
    Change,
    delay,
    delayed,
    knock_out,
    make_programmatic,
    plan,
    refusals,
    serialise,
)
from layerscope.graphs.replay import HEAD_PASS, Link
from tests.graphs.handmade_graphs import early, full, layer, node, row

CHAIN = full(*row(9))
EARLY = early(*row(9))


def test_a_change_is_applied_to_links() -> None:
    """Links to be removed are gone and those to be added there, in order."""
    change = Change(remove=early((1, 2)), add=full((1, 2), (0, 2)))
    links = early((1, 2)) + full((0, 1))
    assert change.applied(links) == full((0, 1), (0, 2), (1, 2))
    assert change.edges_changed == 2
    assert not change.is_empty


def test_an_empty_change_changes_nothing() -> None:
    """Only a change without any edit is empty."""
    assert Change().is_empty
    assert Change().applied(CHAIN) == CHAIN
    assert not Change(disabled=(0,)).is_empty
    assert not Change(delays=((0, 0),)).is_empty


def test_a_serial_twin_replaces_every_programmatic_link() -> None:
    """Each by a full one between the same nodes."""
    assert serialise(layer(), EARLY, ALL) == Change(remove=EARLY, add=CHAIN)


def test_the_serial_twin_of_a_chain_of_full_links_is_itself() -> None:
    """Nothing is to be done, so it need not be made."""
    for scope in (ALL, PASSES, "moe"):
        assert serialise(layer(), CHAIN, scope) == Change()


def test_a_region_of_no_node_cannot_be_serialised() -> None:
    """A region that is misspelt, or only in the head, is told."""
    for scope in ("mhc", "other"):
        assert serialise(layer(), CHAIN, scope) == [
            f"no node of its passes belongs to {scope}"
        ]


def test_only_kernels_that_are_declared_safe_start_early() -> None:
    """Full links into them become programmatic, where they come from a kernel."""
    nodes = [
        node(0, HEAD_PASS, role="norm"),
        node(1, role="gate_up"),
        node(2, kind="copy"),
        node(3, role="gate_up"),
        node(4, role="down"),
        node(5, role="gate_up"),
    ]
    links = full(*row(5)) + early((4, 5)) + full((0, 5))
    assert make_programmatic(nodes, links, ["gate_up"]) == Change(
        remove=full((0, 1), (0, 5)), add=early((0, 1), (0, 5))
    )
    assert make_programmatic(nodes, early(*row(6)), ["down"]) == Change()


def test_without_a_safe_kernel_nothing_starts_early() -> None:
    """Neither roles that are not there nor kernels without one are safe."""
    expected = ["it has no kernel that is declared safe to start early"]
    assert make_programmatic(layer(), CHAIN, ["gate_up"]) == expected
    assert make_programmatic(layer(), CHAIN, []) == expected


def test_a_knock_out_disables_a_region_in_every_pass() -> None:
    """Its kernels; never the head, and never copies, fills, events or empty nodes."""
    nodes = [
        node(0, HEAD_PASS, "moe"),
        node(1, 0, "moe"),
        node(2, 0, "moe", kind="copy"),
        node(3, 0, "moe", kind="empty"),
        node(4, 0, "moe", kind="event record"),
        node(5, 1, "attention"),
        node(6, 1, "moe", kind="fill"),
    ]
    assert knock_out(nodes, "moe", ["moe"]) == Change(disabled=(1,))


def test_a_region_must_be_skippable_and_there_to_be_knocked_out() -> None:
    """Both reasons are told at once."""
    assert knock_out(layer(), "moe", ["attention"]) == [
        "its backend does not declare moe skippable"
    ]
    assert knock_out(layer(), "mhc", []) == [
        "its backend does not declare mhc skippable",
        "no kernel of its passes belongs to mhc",
    ]


def test_a_delay_comes_before_the_first_kernel_of_a_region_in_every_pass() -> None:
    """A copy before it is not delayed."""
    nodes = [*layer(), node(9, 2, "moe", kind="copy"), node(10, 2, "moe")]
    assert delay(nodes, "moe", 2000) == Change(
        delays=((3, 2000), (7, 2000), (10, 2000))
    )
    assert delay(nodes, "moe", 0) == Change(delays=((3, 0), (7, 0), (10, 0)))


def test_a_delay_comes_before_the_first_kernel_that_has_a_role() -> None:
    """Among others or alone, in one region or wherever it is; else the reason."""
    nodes = [
        node(0, HEAD_PASS, role="down"),
        node(1, 0, "attention", role="norm"),
        node(2, 0, "moe", role="norm+route"),
        node(3, 0, "moe", role="down"),
        node(4, 0, "moe", role="down"),
        node(5, 1, "moe", role="norm"),
    ]
    assert delay(nodes, "/norm", 500) == Change(delays=((1, 500), (5, 500)))
    assert delay(nodes, "moe/norm", 500) == Change(delays=((2, 500), (5, 500)))
    assert delay(nodes, "/down", 500) == Change(delays=((3, 500),))
    assert delay(nodes, "/route+norm", 5) == Change(delays=((2, 5),))
    assert delay(nodes, "/nor", 0) == ["no kernel of its passes has the role nor"]
    assert delay(nodes, "attention/down", 0) == [
        "no kernel of attention of its passes has the role down"
    ]


def test_a_delay_is_short_and_before_a_kernel() -> None:
    """At most a millisecond, on a GPU that others use; both reasons at once."""
    assert delay(layer(), "moe", 1_000_001) == [
        "a delay has 0 to 1000000 ns, not 1000001"
    ]
    nodes = [node(0, kind="copy")]
    assert delay(nodes, "moe", -1) == [
        "a delay has 0 to 1000000 ns, not -1",
        "no kernel of its passes belongs to moe",
    ]


def test_a_delay_takes_the_links_of_the_node_behind_it() -> None:
    """Programmatic ones on both sides where one was, full ones otherwise."""
    links = full((0, 1), (2, 3)) + early((1, 2), (0, 3))
    assert delayed(4, links, [(1, 500), (2, 500), (3, 500)]) == (
        Link(0, 4),
        Link.early(0, 6),
        Link.early(1, 5),
        Link(2, 6),
        Link(4, 1),
        Link.early(5, 2),
        Link.early(6, 3),
    )


def test_a_delay_before_a_first_node_leads_to_it() -> None:
    """Nothing leads to the delay."""
    assert delayed(2, full((0, 1)), [(0, 500)]) == full((0, 1), (2, 0))


def test_every_reason_against_a_graph_is_told_at_once() -> None:
    """Kinds with their numbers, order, and waiting kernels beside branches."""
    nodes = [
        node(0, kind="host call"),
        node(1, kind="conditional"),
        node(2, kind="conditional"),
        node(3, role="combine"),
        node(4, role="gather"),
        node(5, kind="empty"),
        node(6, kind="event record"),
        node(7, kind="event wait"),
    ]
    assert refusals(nodes, full((1, 0)), ["gather", "combine", "absent"]) == [
        "it has nodes that cannot be edited: 2 conditional, 1 host call",
        (
            "some of its nodes were created before nodes they depend on, so they "
            "cannot be put in a row"
        ),
        (
            "it has parallel branches and nodes that may wait for others (combine, "
            "gather), which might then wait for ever"
        ),
    ]


def test_a_chain_may_have_kernels_that_wait() -> None:
    """It keeps its order, so what they wait for comes before them."""
    nodes = [node(0, role="gate_up"), node(1, role="combine"), node(2)]
    assert refusals(nodes, early(*row(3)), ["combine"]) == []
    assert refusals(nodes, full((0, 1), (0, 2)), []) == []


def test_operations_on_memory_may_wait_too() -> None:
    """For what a kernel of another branch writes; in a chain, that came before."""
    nodes = [node(0), node(1, kind="memory operation"), node(2)]
    assert refusals(nodes, full(*row(3)), []) == []
    assert refusals(nodes, full((0, 1), (0, 2)), []) == [
        (
            "it has parallel branches and nodes that may wait for others (operations "
            "on memory), which might then wait for ever"
        )
    ]


def test_a_plan_is_the_change_of_each_experiment() -> None:
    """Edits of one experiment are made together, on the links they leave."""
    nodes = [
        node(each.index, each.pass_index, each.region, role=each.region)
        for each in layer()
    ]
    allowed = Allowed(skippable=("moe",), pdl_safe=("moe",))
    serial = Change(remove=EARLY, add=CHAIN)
    assert plan(SERIAL, nodes, EARLY, allowed) == serial
    assert plan(SERIAL, nodes, CHAIN, allowed) == Change()
    without = Experiment(serial=ALL, without="moe")
    assert plan(without, nodes, EARLY, allowed) == Change(
        remove=EARLY, add=CHAIN, disabled=(3, 4, 7, 8)
    )
    late = Experiment(programmatic=True, delay="attention", delay_ns=2000)
    into = [(2, 3), (3, 4), (6, 7), (7, 8)]
    assert plan(late, nodes, CHAIN, allowed) == Change(
        remove=full(*into), add=early(*into), delays=((1, 2000), (5, 2000))
    )
    assert plan(Experiment(), nodes, EARLY, allowed) == Change()


def test_a_plan_tells_every_reason_at_once() -> None:
    """Those against the graph, then those against each edit."""
    nodes = [*layer(), node(9, 1, "moe", kind="child graph")]
    everything = Experiment(
        serial="mhc", programmatic=True, without="moe", delay="mlp", delay_ns=-1
    )
    assert plan(everything, nodes, CHAIN, Allowed()) == [
        "it has nodes that cannot be edited: 1 child graph",
        "its edges cannot become full and programmatic at once",
        "no node of its passes belongs to mhc",
        "it has no kernel that is declared safe to start early",
        "its backend does not declare moe skippable",
        "a delay has 0 to 1000000 ns, not -1",
        "no kernel of its passes belongs to mlp",
    ]
