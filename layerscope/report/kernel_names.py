"""Names of kernels as people read them: what compilers wrapped around them is cut."""

import re
from typing import Final

LENGTH: Final = 40

_UNNAMED: Final = re.compile(r"(\(anonymous namespace\)|<unnamed>)::")
_RETURNED: Final = re.compile(r"(?:.*>::type|void) ")
_IDENTIFIER: Final = re.compile(r"(?:[A-Za-z_]\w*::)*([A-Za-z_]\w*)")
_QUALIFIED: Final = re.compile(r"\b(?!std::)[A-Za-z_]\w*::(?:\w+::)*([A-Za-z_]\w*)")
_NESTED: Final = re.compile(r"N(?:S\w?_|K)?(?=\d)")
_SIZE: Final = re.compile(r"\d{1,3}")

_ONLY_RUN: Final = ("Kernel", "Kernel2")
"""Functions whose template argument is the kernel, also where it is of no namespace."""

_SAY_NOTHING: Final = frozenset(
    {
        *("BFloat16", "Half", "Float8_e4m3fn", "OpaqueType"),
        *("bfloat16_t", "half_t", "float_e4m3_t"),
        *("enable_sm80_to_sm89", "enable_sm90", "enable_sm90_or_later"),
        *("Fp8KVCacheDataType", "BlockScaleQuantizationType", "_typeConvert"),
        *("gpu_kernel_impl", "gpu_kernel_impl_nocast", "KernelParams", "Params"),
    }
)
"""Template arguments that do not tell two kernels apart: types, and more wrapping."""


def short_kernel_name(name: str, length: int = LENGTH) -> str:
    """A kernel's name without types, parameters and namespaces, at most `length` long.

    Of a kernel that only runs the class it is a template of, that class is kept:
    ``void cutlass::device_kernel<flash::FwdSm90<...> >(...)`` is
    ``device_kernel<FwdSm90>``. So it is of names as the compiler mangles them.
    """
    bare = name.removesuffix(".kd").removesuffix(" [clone .kd]").strip()
    if bare.startswith("_Z"):
        short = _demangled(bare)
    else:
        short = _unwrapped(_UNNAMED.sub("", bare))
    short = short or name
    return short if len(short) <= length else f"{short[: length - 1]}…"


def _unwrapped(name: str) -> str:
    """The function, and the first class in its template arguments that says more."""
    returned = _RETURNED.match(name)
    declared = name[returned.end() :] if returned else name
    match = _IDENTIFIER.match(declared)
    if match is None or declared[match.end() : match.end() + 1] not in ("<", "(", ""):
        return declared  # not of C++, such as "Memcpy HtoD (Host -> Device)"
    function, rest = match[1], declared[match.end() :]
    arguments = rest[1:].partition(">(")[0] if rest.startswith("<") else ""
    if function in _ONLY_RUN and (run := _IDENTIFIER.match(arguments)):
        return f"{function}<{run[1]}>"
    classes = (found[1] for found in _QUALIFIED.finditer(arguments))
    inner = next((each for each in classes if each not in _SAY_NOTHING), "")
    return f"{function}<{inner}>" if inner else function


def _demangled(name: str) -> str:
    """The same of a name in the Itanium C++ ABI; the name itself where it is odd."""
    begin = _NESTED.match(name, 2)
    at = begin.end() if begin else 2
    function = ""
    while (found := _identifier(name, at)) is not None:
        function, at = found
    if not function or not name.startswith("I", at):
        return function or name
    inner = _NESTED.search(name, at)
    at = inner.end() if inner else len(name)
    within = ""
    while (found := _identifier(name, at)) is not None:
        within, at = found
    return f"{function}<{within}>" if within else function


def _identifier(name: str, at: int) -> tuple[str, int] | None:
    """The identifier whose length is written at `at`, and where it ends."""
    size = _SIZE.match(name, at)
    if size is None:
        return None
    end = size.end() + int(size[0])
    found = name[size.end() : end]
    return (found, end) if found.isidentifier() and end <= len(name) else None
