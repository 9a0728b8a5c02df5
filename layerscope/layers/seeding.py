"""Random generators that depend on what they draw, never on how much was drawn before.

Pass 3 of a problem has the same weights whether the problem has 4 passes or 24.
"""

import hashlib

import torch


def derived_seed(seed: int, *path: str | int) -> int:
    """A 63-bit seed for the thing that `path` names, such as ("weights", 3, "qkv")."""
    text = "/".join(str(part) for part in (seed, *path))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(device: torch.device, seed: int, *path: str | int) -> torch.Generator:
    """A generator on `device`, seeded for the thing that `path` names."""
    return torch.Generator(device).manual_seed(derived_seed(seed, *path))
