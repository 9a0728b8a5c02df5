import re
from pathlib import Path

from layerscope.analyze.kernel_rules import load_rules
from layerscope.analyze.trace_regions import assign_by_rules
from tests.analyze.named_kernels import named

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernel-rules.md"
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_example_does_what_the_page_says(tmp_path: Path) -> None:
    """The page's table is one, and tells the kernels that the page names."""
    table = tmp_path / "our_rules.toml"
    table.write_text(BLOCKS[0], encoding="utf-8")
    rules = load_rules(table)
    kernels = named(["void warp_spec_gqa_decode_v3<128>", "expert_megakernel_fp8"])
    assert assign_by_rules(kernels, rules).select("region", "assigned_by").rows() == [
        ("attention", "rule our-attention"),
        ("moe", "rule our-experts"),
    ]


def test_every_block_is_a_table(tmp_path: Path) -> None:
    """Whatever the page shows of a table can be used as it stands."""
    for number, block in enumerate(BLOCKS):
        table = tmp_path / f"{number}.toml"
        table.write_text(block, encoding="utf-8")
        rules = load_rules(table)
        first = re.search(r'name = "(.*)"', block)
        assert first is not None
        sections = (rules.rule, rules.join, rules.sequence, rules.range)
        assert first[1] in {entries[0].name for entries in sections}
    assert len(BLOCKS) == 4


def test_every_role_that_sequences_look_for_is_on_the_page() -> None:
    """Who writes a rule can find the roles that matter."""
    rules = load_rules()
    cuts = [cut for rule in rules.sequence for cut in rule.cuts()]
    roles = {step.role for cut in cuts for step in cut.chain()}
    roles |= {role for join in rules.join for role in (*join.roles, join.of)}
    roles |= {role for rule in rules.sequence for role in (*rule.kernels, *rule.rename)}
    page = PAGE.read_text(encoding="utf-8")
    assert {role for role in roles if f"`{role}`" not in page} == set()
