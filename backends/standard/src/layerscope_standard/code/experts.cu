// The experts that have rows, each read once for all of its rows. A dense MLP is one
// expert that has all rows, with weight one.
#include "table.cuh"

constexpr int kUpWarps = 8;
#ifndef UP_DEPTH
#define UP_DEPTH 4
#endif
constexpr int kUpDepth = UP_DEPTH;  // units of k whose weights a warp has in flight
constexpr int kDownWarps = 16;

// Whether a warp of `down` loads weights of its next expert while it multiplies those of
// one. Else all that is loaded at once is of one expert.
#ifndef RUNS_ON
#define RUNS_ON 0
#endif
#ifndef DOWN_DEPTH
#define DOWN_DEPTH 4
#endif
constexpr int kDownDepth = DOWN_DEPTH;  // units of k whose weights a warp has in flight
constexpr int kEight = 8;
static_assert(kMostRows * kOutputs <= 32 * kDownWarps, "an output a thread");

// silu(gate) * up. A tile is eight outputs of gate and, as its rows g + 8, those of up.
// Grid: tiles, experts that may have rows.
template <bool kFp8>
__device__ __forceinline__ void gate_up(
        const void* weights, const float* scales, const bf16* rows, const int* table,
        bf16* active, int width, int inputs, int top_k) {
    __shared__ float shared[kUpWarps][TILES][kTileSums];
    __shared__ int pairs[kMostRows];
    begin_turn();
    wait_turn();
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    const int* entry = table + kHead + blockIdx.y * kEntry;
    const int used = load_handed_int(table), expert = load_handed_int(entry);
    const int count = load_handed_int(entry + 1);
    const int pair = load_handed_int(entry + kPairs + g);
    if ((int)blockIdx.y >= used) return;
    if (threadIdx.x % 4 == 0 && warp == 0) pairs[g] = pair;

    const long long matrix = (long long)expert * 2 * width * inputs * (kFp8 ? 1 : 2);
    const int blocks = (inputs + kQuantBlock - 1) / kQuantBlock *
                       ((2 * width + kQuantBlock - 1) / kQuantBlock);
    const void* own_weights = (const unsigned char*)weights + matrix;
    const float* own_scales = kFp8 ? scales + (long long)expert * blocks : nullptr;
    const int first = blockIdx.x * TILES * kEight;
    Output own[TILES][2];
    float sums[TILES][4] = {};
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int output = first + tile * kEight + g;
            own[tile][half] = output_of<kFp8>(
                own_weights, own_scales, half * width + output, inputs, output < width);
        }
    }
    const bool has_row = g < count;
    const int row = has_row ? pair / top_k : 0, units = units_of<kFp8>(inputs);
    accumulate<kFp8, TILES, kUpDepth>(
        sums, own, rows + row * inputs, has_row, inputs,
        kFp8 ? warp : units * warp / kUpWarps,
        kFp8 ? units : units * (warp + 1) / kUpWarps, kFp8 ? kUpWarps : 1);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) store_sums(shared[warp][tile], sums[tile]);
    __syncthreads();
    dawdle();
    for (int i = threadIdx.x; i < TILES * kEight * kMostRows; i += 32 * kUpWarps) {
        const int tile = i / (kEight * kMostRows), n = i / kEight % kMostRows;
        const int at = n * kRowStride + i % kEight;
        const int output = first + tile * kEight + i % kEight;
        if (n >= count || output >= width) continue;
        float gate = 0.0f, up = 0.0f;
#pragma unroll
        for (int w = 0; w < kUpWarps; ++w) {
            gate += shared[w][tile][at];
            up += shared[w][tile][at + kEight];
        }
        active[(long long)pairs[n] * width + output] =
            narrow(gate / (1.0f + expf(-gate)) * up);
    }
    end_turn();
}

// What the warps of `down` read: 16 outputs of every expert.
struct Matrices {
    const void* weights;
    const float* scales;
    const bf16* active;
    const int* entries;  // of the table
    int first, outputs, inputs, parts, all_pairs;
};

// Where the sums of a part of k of an expert go: [part][pair][kRowStride].
__device__ __forceinline__ void put_sums(
        float* sums_of_pairs, const float (&sums)[4], const int* entry, int part,
        int all_pairs) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, count = entry[1];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (2 * t + i >= count) continue;
        float* to = sums_of_pairs +
                    (part * all_pairs + entry[kPairs + 2 * t + i]) * kRowStride;
        to[g] = sums[i];
        to[g + 8] = sums[2 + i];
    }
}

// The sums of all parts of experts that this warp has, an expert after another.
template <bool kFp8>
__device__ __forceinline__ void one_by_one(
        float* sums_of_pairs, const Matrices& matrices, int items) {
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    const int outputs = matrices.outputs, inputs = matrices.inputs;
    const int parts = matrices.parts, units = units_of<kFp8>(inputs);
    const int blocks = (inputs + kQuantBlock - 1) / kQuantBlock *
                       ((outputs + kQuantBlock - 1) / kQuantBlock);
    for (int n = warp; n < items; n += kDownWarps) {
        const int* entry = matrices.entries + n / parts * kEntry;
        const int part = n % parts;
        const bool has_row = g < entry[1];
        const long long expert = entry[0];
        const void* own_weights = (const unsigned char*)matrices.weights +
                                  expert * outputs * inputs * (kFp8 ? 1 : 2);
        const float* own_scales = kFp8 ? matrices.scales + expert * blocks : nullptr;
        Output own[1][2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int output = matrices.first + 8 * half + g;
            own[0][half] = output_of<kFp8>(
                own_weights, own_scales, output, inputs, output < outputs);
        }
        const long long pair = has_row ? entry[kPairs + g] : 0;
        float sums[1][4] = {};
        accumulate<kFp8, 1, kDownDepth, LOADS_EARLY>(
            sums, own, matrices.active + pair * inputs, has_row, inputs,
            units * part / parts, units * (part + 1) / parts, 1);
        put_sums(sums_of_pairs, sums[0], entry, part, matrices.all_pairs);
    }
}

// A part of k of an expert, and which of its units a thread loads next.
struct Item {
    const unsigned char* weights;  // of output g
    const float* scales;           // of all 16 outputs
    const bf16* row;
    bool has_row;
    int number, unit, end;
};

// The same in one stream: a unit that was multiplied makes room for the one that is
// kDownDepth later, be it of the same expert or of the next.
template <bool kFp8>
__device__ __forceinline__ void in_one_stream(
        float* sums_of_pairs, const Matrices& matrices, int items) {
    constexpr int kSize = kFp8 ? 1 : 2, kUnitBytes = 64;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int first = matrices.first, outputs = matrices.outputs;
    const int inputs = matrices.inputs, parts = matrices.parts;
    const int units = units_of<kFp8>(inputs), row_bytes = inputs * kSize;
    const int blocks = (inputs + kQuantBlock - 1) / kQuantBlock;
    const int all_blocks = blocks * ((outputs + kQuantBlock - 1) / kQuantBlock);
    auto item_of = [&](int number) {
        Item item = {};
        item.number = number;
        if (number >= items) return item;
        const int slot = parts == 1 ? number : number / parts;
        const int* entry = matrices.entries + slot * kEntry;
        const int part = number - slot * parts, expert = entry[0];
        item.has_row = g < entry[1];
        item.row = matrices.active + t * (16 / kSize) +
                   (item.has_row ? entry[kPairs + g] : 0) * (long long)inputs;
        item.weights = (const unsigned char*)matrices.weights + 16 * t +
                       ((long long)expert * outputs + first + g) * row_bytes;
        if constexpr (kFp8)
            item.scales = matrices.scales + (long long)expert * all_blocks +
                          first / kQuantBlock * blocks;
        item.unit = units * part / parts;
        item.end = units * (part + 1) / parts;
        return item;
    };
    auto advance = [&](Item& item) {
        if (++item.unit >= item.end) item = item_of(item.number + kDownWarps);
    };
    // A part has no unit where there are more parts than units.
    auto is_inside = [&](const Item& item) {
        const int k = item.unit * kUnit<kFp8> + t * (16 / kSize);
        return item.unit < item.end && k < inputs;
    };
    uint4 weights[kDownDepth][2], rows[kDownDepth][2];
    float scale[kDownDepth];
    bool is_last[kDownDepth];
    auto load_weights = [&](int slot, const Item& item) {
        const bool is_there = is_inside(item);
#pragma unroll
        for (int half = 0; half < 2; ++half)
            weights[slot][half] = load_constant(
                item.weights + 8 * half * row_bytes + item.unit * kUnitBytes,
                is_there && first + 8 * half + g < outputs);
        if constexpr (kFp8)
            scale[slot] = load_constant_float(
                item.scales + item.unit * kUnit<kFp8> / kQuantBlock,
                item.unit < item.end);
    };
    auto load_row = [&](int slot, const Item& item) {
        const bf16* from = item.row + item.unit * kUnit<kFp8>;
        const bool is_there = item.has_row && is_inside(item);
        rows[slot][0] = load_handed(from, is_there);
        if constexpr (kFp8) rows[slot][1] = load_handed(from + 8, is_there);
        is_last[slot] = item.unit + 1 >= item.end;
    };
    Item ahead = item_of(warp), again = ahead;
#pragma unroll
    for (int n = 0; n < kDownDepth; ++n) {
        if (ahead.number >= items) break;
        load_weights(n, ahead);
        advance(ahead);
    }
    if constexpr (LOADS_EARLY) wait_turn();
#pragma unroll
    for (int n = 0; n < kDownDepth; ++n) {
        if (again.number >= items) break;
        load_row(n, again);
        advance(again);
    }
    float sums[4] = {};
#pragma unroll 1
    for (int number = warp; number < items;) {
#pragma unroll
        for (int n = 0; n < kDownDepth; ++n) {
            if (number >= items) break;
            multiply_unit<kFp8>(
                sums, weights[n][0], weights[n][1], rows[n], scale[n], scale[n]);
            if (is_last[n]) {
                const int slot = parts == 1 ? number : number / parts;
                put_sums(sums_of_pairs, sums, matrices.entries + slot * kEntry,
                         number - slot * parts, matrices.all_pairs);
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[i] = 0.0f;
                number += kDownWarps;
            }
            if (ahead.number < items) {
                load_weights(n, ahead);
                load_row(n, ahead);
                advance(ahead);
            }
        }
    }
}

// The residual plus the weighted sum of the experts' outputs in the order of their
// places. A block takes 16 outputs of all experts; a warp takes, in turn, one of `parts`
// parts of k of one expert.
template <bool kFp8>
__device__ __forceinline__ void down(
        const void* weights, const float* scales, const bf16* active, const int* table,
        const float* row_weights, const bf16* residual, bf16* out, int row_count,
        int top_k, int outputs, int inputs, int parts, int most_experts) {
    DYNAMIC_SHARED(dynamic);
    const int all_pairs = row_count * top_k;
    float* sums_of_pairs = (float*)dynamic;  // [parts][pairs][kRowStride]
    int* entries = (int*)(sums_of_pairs + parts * all_pairs * kRowStride);
    float* shares = (float*)(entries + most_experts * kEntry);
    begin_turn();
    // Where gate_up starts this kernel, it has waited itself: what routing wrote is there.
    if constexpr (!LOADS_EARLY) wait_turn();
    // All of it in one trip.
    constexpr int kVector = 4;
    static_assert(kEntry % kVector == 0 && kHead % kVector == 0 && kRowStride % 4 == 0,
                  "entries are copied by 16 bytes");
    for (int i = threadIdx.x; i < most_experts * kEntry / kVector; i += 32 * kDownWarps)
        copy(entries + i * kVector, table + kHead + i * kVector, true);
    close_copies();
    const int used = load_handed_int(table);
    // There are fewer pairs than threads, and fewer outputs, of which each has one.
    const bool has_share = (int)threadIdx.x < all_pairs;
    const float share = load_handed_float(row_weights + threadIdx.x, has_share);
    const int first = blockIdx.x * kOutputs;
    const int row = threadIdx.x / kOutputs, output = first + (int)threadIdx.x % kOutputs;
    const bool has_output = row < row_count && output < outputs;
    const long long at = has_output ? (long long)row * outputs + output : 0;
    const float before = has_output ? low_half(load_handed_half(residual + at)) : 0.0f;
    if (has_share) shares[threadIdx.x] = share;
    wait_for_copies<0>();
    __syncthreads();

    const Matrices matrices = {weights, scales,  active, entries,  first,
                               outputs, inputs, parts,  all_pairs};
    if constexpr (RUNS_ON) {
        in_one_stream<kFp8>(sums_of_pairs, matrices, used * parts);
    } else {
        one_by_one<kFp8>(sums_of_pairs, matrices, used * parts);
    }
    if constexpr (LOADS_EARLY) wait_turn();  // also where a warp has had no expert
    __syncthreads();
    if (has_output) {
        float sum = 0.0f;
#pragma unroll 8
        for (int place = 0; place < top_k; ++place) {
            const int pair = row * top_k + place;
            float one = 0.0f;
            for (int part = 0; part < parts; ++part)
                one += sums_of_pairs[(part * all_pairs + pair) * kRowStride +
                                     threadIdx.x % kOutputs];
            sum += shares[pair] * one;
        }
        out[at] = narrow(before + sum);
    }
    end_turn();
}

#define EXPERTS(SUFFIX, FP8)                                                           \
    extern "C" __global__ void __launch_bounds__(32 * kUpWarps, 2) gate_up_##SUFFIX(   \
            const void* weights, const float* scales, const bf16* rows,                \
            const int* table, bf16* active, int width, int inputs, int top_k) {        \
        gate_up<FP8>(weights, scales, rows, table, active, width, inputs, top_k);      \
    }                                                                                  \
    extern "C" __global__ void __launch_bounds__(32 * kDownWarps, 1) down_##SUFFIX(    \
            const void* weights, const float* scales, const bf16* active,              \
            const int* table, const float* row_weights, const bf16* residual,          \
            bf16* out, int row_count, int top_k, int outputs, int inputs, int parts,   \
            int most_experts) {                                                        \
        down<FP8>(weights, scales, active, table, row_weights, residual, out,          \
                  row_count, top_k, outputs, inputs, parts, most_experts);             \
    }

EXPERTS(bf16, false)
EXPERTS(fp8, true)
