"""Triton kernels: products with a few rows, norms, and a small mixture of experts.

Weights are the first operand of ``tl.dot`` and rows of the step its eight columns. All
kernels wait at entry and trigger at the end, where PDL says so. What other kernels have
written is loaded past the first cache, which may have been filled before the wait.
"""

import triton
import triton.language as tl


@triton.jit
def add_product(
    sums,
    weights,
    scales,
    is_output,
    right,
    unit,
    inputs,
    K: tl.constexpr,
    QUANT: tl.constexpr,
    EMULATED: tl.constexpr,
):
    """Add the product of one tile of k; fp8 weights are scaled after it.

    K divides a block of scales, so that an output has one scale in a tile.
    """
    k = unit * K + tl.arange(0, K)
    is_there = is_output[:, None] & (k < inputs)[None, :]
    left = tl.load(weights + k[None, :], mask=is_there, other=0.0)
    if EMULATED:  # Triton's interpreter has no products in bfloat16
        left = left.to(tl.float32)
        right = right.to(tl.float32)
    else:
        left = left.to(tl.bfloat16)
    if QUANT:
        scale = tl.load(scales + unit * K // QUANT, mask=is_output, other=0.0)
        sums += tl.dot(left, right) * scale[:, None]
    else:
        sums = tl.dot(left, right, sums)
    return sums


@triton.jit
def scales_of(scales, expert, outputs, output, inputs, QUANT: tl.constexpr):
    """Where the scales of rows of a matrix are; not read where weights have none."""
    if QUANT:
        blocks = tl.cdiv(inputs, QUANT)
        scales += (expert * tl.cdiv(outputs, QUANT) + output // QUANT) * blocks
    return scales


@triton.jit
def load_rows(rows, is_row, unit, inputs, K: tl.constexpr):
    """A tile of k of rows that another kernel has written, as columns."""
    k = unit * K + tl.arange(0, K)
    is_there = (k < inputs)[:, None] & is_row[None, :]
    return tl.load(rows + k[:, None], mask=is_there, other=0.0, cache_modifier=".cg")


@triton.jit
def product_kernel(
    weights,
    scales,
    rows,
    parts,
    row_count,
    outputs,
    inputs,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    K: tl.constexpr,
    QUANT: tl.constexpr,
    EMULATED: tl.constexpr,
    PDL: tl.constexpr,
):
    """One tile of outputs and one part of k a program; see code/product.cu."""
    if PDL:
        tl.extra.cuda.gdc_wait()
    split = tl.program_id(1)
    splits = tl.num_programs(1)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    row = tl.arange(0, ROWS)
    is_output = output < outputs
    is_row = row < row_count
    own = weights + output.to(tl.int64)[:, None] * inputs
    own_scales = scales_of(scales, 0, outputs, output, inputs, QUANT)
    own_rows = rows + row[None, :] * inputs
    units = tl.cdiv(inputs, K)
    sums = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for unit in range(units * split // splits, units * (split + 1) // splits):
        right = load_rows(own_rows, is_row, unit, inputs, K)
        sums = add_product(
            sums, own, own_scales, is_output, right, unit, inputs, K, QUANT, EMULATED
        )
    to = parts + (split * row_count + row[None, :]).to(tl.int64) * outputs
    tl.store(to + output[:, None], sums, mask=is_output[:, None] & is_row[None, :])
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def norm_kernel(
    parts,
    residual,
    weight,
    summed,
    normed,
    splits,
    size,
    eps,
    SIZE: tl.constexpr,
    ADDS: tl.constexpr,
    PDL: tl.constexpr,
):
    """The residual, plus the parts of a product if ADDS, and its norm; a row each."""
    if PDL:
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    rows = tl.num_programs(0)
    at = tl.arange(0, SIZE)
    is_there = at < size
    scale = tl.load(weight + at, mask=is_there, other=0.0).to(tl.float32)
    value = tl.load(
        residual + row * size + at, mask=is_there, other=0.0, cache_modifier=".cg"
    ).to(tl.float32)
    if ADDS:
        added = tl.zeros([SIZE], tl.float32)
        for split in range(splits):
            part = parts + (split * rows + row) * size + at
            added += tl.load(part, mask=is_there, other=0.0, cache_modifier=".cg")
        value = (value + added).to(tl.bfloat16).to(tl.float32)
        tl.store(summed + row * size + at, value.to(tl.bfloat16), mask=is_there)
    factor = tl.rsqrt(tl.sum(value * value) / size + eps)
    scaled = (value * factor).to(tl.bfloat16).to(tl.float32) * scale
    tl.store(normed + row * size + at, scaled.to(tl.bfloat16), mask=is_there)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def load_entry(table, slot, ROWS: tl.constexpr):
    """An expert that has rows, and their pairs; see code/table.cuh."""
    entry = table + 4 + 12 * slot
    place = tl.arange(0, ROWS)
    expert = tl.load(entry, cache_modifier=".cg").to(tl.int64)
    is_row = place < tl.load(entry + 1, cache_modifier=".cg")
    pair = tl.load(entry + 4 + place, mask=is_row, other=0, cache_modifier=".cg")
    return expert, is_row, pair


@triton.jit
def gate_up_kernel(
    weights,
    scales,
    rows,
    table,
    active,
    width,
    inputs,
    top_k,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    K: tl.constexpr,
    QUANT: tl.constexpr,
    EMULATED: tl.constexpr,
    PDL: tl.constexpr,
):
    """A tile of one expert: silu(gate) * up of all rows that it has."""
    if PDL:
        tl.extra.cuda.gdc_wait()
    slot = tl.program_id(1)
    if slot < tl.load(table, cache_modifier=".cg"):
        expert, is_row, pair = load_entry(table, slot, ROWS)
        output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
        is_output = output < width
        gates = weights + (expert * 2 * width + output)[:, None] * inputs
        ups = gates + width.to(tl.int64) * inputs
        own_rows = rows + (pair // top_k)[None, :] * inputs
        gate_scales = scales_of(scales, expert, 2 * width, output, inputs, QUANT)
        up_scales = scales_of(scales, expert, 2 * width, width + output, inputs, QUANT)
        gate = tl.zeros([OUTPUTS, ROWS], tl.float32)
        up = tl.zeros([OUTPUTS, ROWS], tl.float32)
        for unit in range(tl.cdiv(inputs, K)):
            right = load_rows(own_rows, is_row, unit, inputs, K)
            gate = add_product(
                gate,
                gates,
                gate_scales,
                is_output,
                right,
                unit,
                inputs,
                K,
                QUANT,
                EMULATED,
            )
            up = add_product(
                up,
                ups,
                up_scales,
                is_output,
                right,
                unit,
                inputs,
                K,
                QUANT,
                EMULATED,
            )
        value = gate / (1.0 + tl.exp(-gate)) * up
        to = active + pair.to(tl.int64)[None, :] * width + output[:, None]
        is_stored = is_output[:, None] & is_row[None, :]
        tl.store(to, value.to(tl.bfloat16), mask=is_stored)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def down_kernel(
    weights,
    scales,
    active,
    table,
    each,
    outputs,
    inputs,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    K: tl.constexpr,
    QUANT: tl.constexpr,
    EMULATED: tl.constexpr,
    PDL: tl.constexpr,
):
    """A tile of one expert: the outputs of all pairs that it has, unweighted."""
    if PDL:
        tl.extra.cuda.gdc_wait()
    slot = tl.program_id(1)
    if slot < tl.load(table, cache_modifier=".cg"):
        expert, is_row, pair = load_entry(table, slot, ROWS)
        output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
        is_output = output < outputs
        own = weights + (expert * outputs + output)[:, None] * inputs
        own_rows = active + pair.to(tl.int64)[None, :] * inputs
        own_scales = scales_of(scales, expert, outputs, output, inputs, QUANT)
        sums = tl.zeros([OUTPUTS, ROWS], tl.float32)
        for unit in range(tl.cdiv(inputs, K)):
            right = load_rows(own_rows, is_row, unit, inputs, K)
            sums = add_product(
                sums,
                own,
                own_scales,
                is_output,
                right,
                unit,
                inputs,
                K,
                QUANT,
                EMULATED,
            )
        to = each + pair.to(tl.int64)[None, :] * outputs + output[:, None]
        tl.store(to, sums, mask=is_output[:, None] & is_row[None, :])
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def sum_kernel(
    each,
    row_weights,
    residual,
    out,
    outputs,
    top_k,
    OUTPUTS: tl.constexpr,
    PDL: tl.constexpr,
):
    """The residual plus the weighted sum of a row's pairs, in order of their places."""
    if PDL:
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(1).to(tl.int64)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    is_output = output < outputs
    sums = tl.zeros([OUTPUTS], tl.float32)
    for place in range(top_k):
        pair = row * top_k + place
        share = tl.load(row_weights + pair, cache_modifier=".cg")
        one = each + pair * outputs + output
        sums += share * tl.load(one, mask=is_output, other=0.0, cache_modifier=".cg")
    at = row * outputs + output
    before = tl.load(residual + at, mask=is_output, other=0.0, cache_modifier=".cg")
    total = before.to(tl.float32) + sums
    tl.store(out + at, total.to(tl.bfloat16), mask=is_output)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
