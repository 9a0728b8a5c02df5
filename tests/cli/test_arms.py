import pytest

from layerscope.cli.arms import parse_arms
from layerscope.errors import InputError
from layerscope.study import Arm


def test_arms_with_switches() -> None:
    """Names are separated by commas, switches by colons; order is kept."""
    assert parse_arms("reference, fused:pdl=stock:early=off,fused") == (
        Arm(backend="reference"),
        Arm(backend="fused", switches={"pdl": "stock", "early": "off"}),
        Arm(backend="fused"),
    )


def test_a_value_may_hold_an_equals_sign() -> None:
    """Only the first equals sign ends a switch's name."""
    assert parse_arms("a:flags=x=1")[0].switches == {"flags": "x=1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--arms '' has an arm without a name; write A,B:switch=value"),
        ("a,,b", "--arms 'a,,b' has an arm without a name; write A,B:switch=value"),
        (":x=1", "--arms ':x=1' has an arm without a name; write A,B:switch=value"),
        ("a:pdl", "--arms: 'pdl' of a is not switch=value"),
        ("a:=on", "--arms: '=on' of a is not switch=value"),
        ("a:pdl=", "--arms: 'pdl=' of a is not switch=value"),
        ("a:x=1:x=2", "--arms: a sets x twice"),
        ("a,b,a", "--arms names a twice; the A/A capture is made without asking"),
    ],
)
def test_bad_syntax_is_refused(text: str, message: str) -> None:
    """Whatever cannot be an arm is named in one line."""
    with pytest.raises(InputError) as caught:
        parse_arms(text)
    assert str(caught.value) == message
