import pytest

from layerscope.record.names import demangled


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("_Z4gemmPKfi", "gemm(float const*, int)"),
        ("_ZN7ck_tile6kentryILi1EEEvv", "void ck_tile::kentry<1>()"),
        ("_Znot_a_mangled_name", "_Znot_a_mangled_name"),
        ("triton_poi_fused_0", "triton_poi_fused_0"),
        ("void f<int>()", "void f<int>()"),
        ("", ""),
    ],
)
def test_mangled_names_are_read_and_all_others_stay(name: str, readable: str) -> None:
    """What is no mangled C++ name comes back as it is."""
    assert demangled(name) == readable
