from pathlib import Path

import pytest

from layerscope.analyze.kernel_rules import KernelRule, load_rules
from layerscope.errors import InputError
from layerscope.regions import Region

OWN = """
[[rule]]
name = "our-attention"
pattern = 'our_attention_v\\d'
role = "core"
region = "attention"
library = "ours"
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "rules.toml"


def refusal(table: Path, text: str) -> str:
    """What is said of a table that cannot be used, without the name of its file."""
    table.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_rules(table)
    return str(error.value).removeprefix(f"{table}: ")


def test_shipped_rules_load() -> None:
    """The table that is shipped is whole: all sections, every region a known one."""
    rules = load_rules()
    told = {rule.region for rule in rules.rule} - {None}
    assert told <= {region.value for region in Region}
    assert min(len(rules.rule), len(rules.join), len(rules.sequence)) > 2
    assert len(rules.range) > 2


def test_own_rules_come_first(table: Path) -> None:
    """What a user's table says comes before what is shipped."""
    table.write_text(OWN, encoding="utf-8")
    rules = load_rules(table)
    own = KernelRule(
        name="our-attention",
        pattern=r"our_attention_v\d",
        role="core",
        region="attention",
        library="ours",
    )
    assert rules.rule == (own, *load_rules().rule)
    assert rules.sequence == load_rules().sequence


def test_own_rule_takes_the_place_of_one_of_its_name(table: Path) -> None:
    """A rule of a shipped one's name is in force in place of that."""
    shipped = load_rules()
    table.write_text(OWN.replace("our-attention", "rope"), encoding="utf-8")
    rules = load_rules(table)
    assert len(rules.rule) == len(shipped.rule)
    assert [rule.library for rule in rules.rule if rule.name == "rope"] == ["ours"]


def test_an_empty_table_changes_nothing(table: Path) -> None:
    """A user's table without rules leaves the shipped ones as they are."""
    table.write_text("", encoding="utf-8")
    assert load_rules(table) == load_rules()


def test_a_missing_file_is_said(table: Path) -> None:
    """A table that is not there is named, in one line."""
    with pytest.raises(InputError, match=r"rules\.toml cannot be read .*: name a file"):
        load_rules(table)


def test_what_is_no_toml_is_said(table: Path) -> None:
    """Where the text goes wrong is said."""
    assert "is no TOML (" in refusal(table, "[[rule]\n")
    table.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        load_rules(table)


WRONG = {
    OWN.replace('role = "core"\n', ""): (
        "rule 'our-attention': Object missing required field `role`"
        ": see docs/kernel-rules.md"
    ),
    OWN.replace('"core"', "3"): (
        "rule 'our-attention', role: Expected `str`, got `int`"
        ": see docs/kernel-rules.md"
    ),
    OWN.replace("role", "rolle"): (
        "rule 'our-attention': Object contains unknown field `rolle`"
        ": see docs/kernel-rules.md"
    ),
    "[[rule]]\n": (
        "rule number 1: Object missing required field `name`: see docs/kernel-rules.md"
    ),
    "[[rules]]\n": "Object contains unknown field `rules`: see docs/kernel-rules.md",
    "rule = 1\n": "Expected `array`, got `int`: see docs/kernel-rules.md",
    OWN.replace("our_", "(?=our)"): (
        "rule 'our-attention', pattern: look-around, including look-ahead and "
        "look-behind, is not supported: write it as Rust's regular expressions are"
    ),
    OWN.replace("our_", "("): (
        "rule 'our-attention', pattern: unclosed group"
        ": write it as Rust's regular expressions are"
    ),
    OWN.replace("our_", "(a{1000}){1000}"): (
        "rule 'our-attention', pattern: Compiled regex exceeds size limit of 10485760 "
        "bytes: write it as Rust's regular expressions are"
    ),
    OWN.replace('"attention"', '"self attention"'): (
        "rule 'our-attention', region: 'self attention' is no name"
        ": a letter, then letters, digits and _"
    ),
    OWN.replace('"attention"', '"unassigned"'): (
        "rule 'our-attention', region: 'unassigned' is no name"
        ": a letter, then letters, digits and _"
    ),
    OWN.replace('"core"', '"core+"'): (
        "rule 'our-attention', role: '' is no name"
        ": a letter, then letters, digits and _"
    ),
    OWN.replace('"our-attention"', '""'): (
        "rule '', name: it is empty or no plain text: give it a short name"
    ),
    OWN + OWN: "rule 'our-attention' is there twice: rename one",
    '[[join]]\nname = "j"\nroles = ["fill"]\nto = "next"\nof = "gemm"\ntimes = 0\n': (
        "join 'j', times: it is no number from 1 to 100"
    ),
    '[[join]]\nname = "j"\nroles = ["fill"]\nto = "up"\nof = "gemm"\n': (
        "join 'j', to: Invalid enum value 'up': see docs/kernel-rules.md"
    ),
    '[[range]]\nname = "r"\npattern = "["\nregion = "moe"\n': (
        "range 'r', pattern: unclosed character class"
        ": write it as Rust's regular expressions are"
    ),
    (
        '[[sequence]]\nname = "s"\nafter = ["moe"]\nbefore = ["moe"]\nregion = "moe"\n'
        'until = "third gemm"\n'
    ): (
        "sequence 's', until: 'third gemm' is no place"
        ", as 'last gemm before first norm' is"
    ),
    (
        '[[sequence]]\nname = "s"\nafter = ["moe"]\nbefore = ["moe"]\nregion = "moe"\n'
        'needs = ["gemm"]\n'
    ): "sequence 's', needs: 'gemm' is no place, as 'last gemm before first norm' is",
}


@pytest.mark.parametrize(("text", "said"), WRONG.items())
def test_what_is_wrong_is_said_in_one_line(table: Path, text: str, said: str) -> None:
    """An entry that cannot be used is named by section, name and field."""
    assert refusal(table, text) == said
