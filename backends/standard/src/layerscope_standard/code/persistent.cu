// The experts that have rows, as in experts.cu, by blocks that stay: as many as there are
// processors, each with weights on their way from its first tile to its last.
//
// Warps do not share what they load; see ring.cuh.
#include "ring.cuh"

// Whether gate_up brings weights of down into the cache when it has no more to ask for.
#ifndef PREFETCHES
#define PREFETCHES 0
#endif

constexpr int kWarps = 8;
constexpr int kPrefetched = 2048;  // bytes at a time
constexpr int kThreads = 32 * kWarps;
constexpr int kEight = 8;
template <bool kFp8>
using Own = Ring<kFp8, DEPTH>;

// The table into shared memory; waits until it is there for all threads.
__device__ __forceinline__ void load_table(int* to, const int* table, int most_experts) {
    const int pieces = (kHead + most_experts * kEntry) / 4;
    for (int i = threadIdx.x; i < pieces; i += kThreads)
        copy(to + 4 * i, table + 4 * i, true);
    close_copies();
    wait_for_copies<0>();
    __syncthreads();
}

// silu(gate) * up. SHARE warps take a tile of eight outputs of gate and those of up.
// Tiles of all experts go round the blocks, and within a block round its groups of warps.
// Of the matrices of down, `next_bytes` each, those from expert `ahead` of the table on
// are not asked for by down itself before this kernel has ended.
template <bool kFp8>
__device__ __forceinline__ void gate_up(
        const void* weights, const float* scales, const bf16* rows, const int* table,
        bf16* active, const void* next_weights, int width, int inputs, int top_k,
        int row_count, int most_experts, int next_bytes, int ahead) {
    constexpr int kGroups = kWarps / SHARE;
    DYNAMIC_SHARED(dynamic);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int row_bytes = row_bytes_of<kFp8>(inputs), stages = stages_of(row_bytes);
    Own<kFp8> ring = {dynamic + warp * Own<kFp8>::kBytes};
    int* entries = (int*)(dynamic + kWarps * Own<kFp8>::kBytes);
    const Rows given = Rows::at<kFp8>(
        (unsigned char*)(entries + kHead + most_experts * kEntry), row_count, stages);
    begin_turn();
    constexpr bool kAsksEarly = LOADS_EARLY && !ROUTED;  // the table is a constant
    if constexpr (!kAsksEarly) wait_turn();
    load_table(entries, table, most_experts);

    const int tiles = width / kEight, items = entries[0] * tiles;
    const int group = warp / SHARE, sub = warp % SHARE, stride = gridDim.x * kGroups;
    const int first = blockIdx.x + gridDim.x * group;
    const int blocks = (inputs + kQuantBlock - 1) / kQuantBlock;
    const int blocks_of_rows = (2 * width + kQuantBlock - 1) / kQuantBlock;
    const auto source_of = [&](int item) -> Source {
        const long long expert = entries[kHead + item / tiles * kEntry];
        const int output = item % tiles * kEight;
        const auto* matrix =
            (const unsigned char*)weights + expert * 2 * width * row_bytes;
        const float* own = kFp8 ? scales + expert * blocks_of_rows * blocks : nullptr;
        return {matrix + (long long)(output + g) * row_bytes,
                matrix + (long long)(width + output + g) * row_bytes,
                own + output / kQuantBlock * blocks,
                own + (width + output) / kQuantBlock * blocks};
    };
    // A warp of a group has what lies together, which the memory gives faster.
    const int begin = stages * sub / SHARE, end = stages * (sub + 1) / SHARE;
    int next = first, next_stage = begin, next_piece = blockIdx.x * kWarps + warp;
    const int pieces = (next_bytes + kPrefetched - 1) / kPrefetched;
    Source source = {};
    if (next < items) source = source_of(next);
    const auto ask = [&](bool has_begun) {
        if (next < items) {
            ring.fill(source, next_stage, row_bytes);
            if (++next_stage == end) {
                next_stage = begin;
                next += stride;
                if (next < items) source = source_of(next);
            }
        } else if (PREFETCHES && has_begun) {
            const int slot = ahead + next_piece / pieces;
            if (lane == 0 && slot < entries[0]) {
                const long long expert = entries[kHead + slot * kEntry];
                const int at = next_piece % pieces * kPrefetched;
                prefetch((const unsigned char*)next_weights + expert * next_bytes + at,
                         min(kPrefetched, next_bytes - at));
            }
            next_piece += gridDim.x * kWarps;
        }
        close_copies();
        ring.advance();
    };
#pragma unroll 1
    for (int i = 0; i < DEPTH; ++i) ask(false);
    if constexpr (kAsksEarly) wait_turn();
    given.load(rows, inputs, kThreads);
    __syncthreads();
    if constexpr (kFp8) {
        given.narrow_rows(kWarps);
        __syncthreads();
    }

    int turn = 0;
#pragma unroll 1
    for (int item = first; item < items; item += stride, turn ^= 1) {
        const int* entry = entries + kHead + item / tiles * kEntry;
        const int count = entry[1], output = item % tiles * kEight;
        const int number = g < count ? entry[kPairs + g] / top_k : row_count;
        const unsigned char* row = given.row(number);
        float sums[4] = {};
#pragma unroll 1
        for (int stage = begin; stage < end; ++stage) {
            wait_for_copies<DEPTH - 1>();
            if constexpr (kFp8) __syncwarp();  // scales are of two threads
            ring.multiply_stage(sums, row, stage);
            if constexpr (kFp8) __syncwarp();
            ask(true);
        }
        dawdle();
        float* shared = (float*)(given.factors + row_count) +
                        (turn * kWarps + group * SHARE) * kTileSums;
        const auto store = [&](int column, int eighth, float gate, float up) {
            if constexpr (kFp8) {
                const float factor = given.factors[entry[kPairs + column] / top_k];
                gate *= factor;
                up *= factor;
            }
            active[(long long)entry[kPairs + column] * width + output + eighth] =
                narrow(gate / (1.0f + expf(-gate)) * up);
        };
        if constexpr (SHARE == 1) {
#pragma unroll
            for (int i = 0; i < 2; ++i)
                if (2 * t + i < count) store(2 * t + i, g, sums[i], sums[2 + i]);
        } else {
            store_sums(shared + sub * kTileSums, sums);
            meet(1 + group, 32 * SHARE);
            for (int i = 32 * sub + lane; i < kEight * count; i += 32 * SHARE) {
                const int at = i / kEight * kRowStride + i % kEight;
                float gate = 0.0f, up = 0.0f;
#pragma unroll
                for (int w = 0; w < SHARE; ++w) {
                    gate += shared[w * kTileSums + at];
                    up += shared[w * kTileSums + at + kEight];
                }
                store(i / kEight, i % kEight, gate, up);
            }
        }
    }
    end_turn();
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
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int all_pairs = row_count * top_k;
    const int row_bytes = row_bytes_of<kFp8>(inputs), stages = stages_of(row_bytes);
    Own<kFp8> ring = {dynamic + warp * Own<kFp8>::kBytes};
    int* entries = (int*)(dynamic + kWarps * Own<kFp8>::kBytes);
    const Rows given = Rows::at<kFp8>(
        (unsigned char*)(entries + kHead + most_experts * kEntry), all_pairs, stages);
    float* shares = given.factors + all_pairs;
    float* sums_of_pairs = shares + all_pairs;  // [parts][pairs][kRowStride]
    begin_turn();
    // Where gate_up starts this kernel, it has waited itself: what routing wrote is there.
    if constexpr (!LOADS_EARLY) wait_turn();
    load_table(entries, table, most_experts);

    const int items = entries[0] * parts, first_output = blockIdx.x * kOutputs;
    const int blocks = (inputs + kQuantBlock - 1) / kQuantBlock;
    const int blocks_of_rows = (outputs + kQuantBlock - 1) / kQuantBlock;
    const auto source_of = [&](int item) -> Source {
        const long long expert = entries[kHead + item / parts * kEntry];
        const auto* low = (const unsigned char*)weights +
                          (expert * outputs + first_output + g) * row_bytes;
        const float* own = kFp8 ? scales + (expert * blocks_of_rows +
                                            first_output / kQuantBlock) * blocks
                                : nullptr;
        return {low, low + kEight * row_bytes, own, own};
    };
    const auto begin_of = [&](int item) { return stages * (item % parts) / parts; };
    const auto end_of = [&](int item) { return stages * (item % parts + 1) / parts; };
    int next = warp, next_stage = begin_of(next), next_end = end_of(next);
    Source source = {};
    if (next < items) source = source_of(next);
    const auto ask = [&] {
        if (next < items) {
            ring.fill(source, next_stage, row_bytes);
            if (++next_stage == next_end) {
                next += kWarps;
                next_stage = begin_of(next);
                next_end = end_of(next);
                if (next < items) source = source_of(next);
            }
        }
        close_copies();
        ring.advance();
    };
#pragma unroll 1
    for (int i = 0; i < DEPTH; ++i) ask();
    if constexpr (LOADS_EARLY) wait_turn();
    const bool has_share = (int)threadIdx.x < all_pairs;
    const float share = load_handed_float(row_weights + threadIdx.x, has_share);
    given.load(active, inputs, kThreads);
    if (has_share) shares[threadIdx.x] = share;
    __syncthreads();
    if constexpr (kFp8) {
        given.narrow_rows(kWarps);
        __syncthreads();
    }

#pragma unroll 1
    for (int item = warp; item < items; item += kWarps) {
        const int* entry = entries + kHead + item / parts * kEntry;
        const int count = entry[1], part = item % parts, end = end_of(item);
        const unsigned char* row = given.row(g < count ? entry[kPairs + g] : all_pairs);
        float sums[4] = {};
#pragma unroll 1
        for (int stage = begin_of(item); stage < end; ++stage) {
            wait_for_copies<DEPTH - 1>();
            if constexpr (kFp8) __syncwarp();  // scales are of two threads
            ring.multiply_stage(sums, row, stage);
            if constexpr (kFp8) __syncwarp();
            ask();
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (2 * t + i >= count) continue;
            const int pair = entry[kPairs + 2 * t + i];
            const float factor = kFp8 ? given.factors[pair] : 1.0f;
            float* to = sums_of_pairs + (part * all_pairs + pair) * kRowStride;
            to[g] = sums[i] * factor;
            to[g + 8] = sums[2 + i] * factor;
        }
    }
    __syncthreads();
    dawdle();
    for (int i = threadIdx.x; i < row_count * kOutputs; i += kThreads) {
        const int row = i / kOutputs, output = first_output + i % kOutputs;
        const long long at = (long long)row * outputs + output;
        const float kept = low_half(load_handed_half(residual + at));
        float sum = 0.0f;
        for (int place = 0; place < top_k; ++place) {
            const int pair = row * top_k + place;
            float one = 0.0f;
            for (int part = 0; part < parts; ++part)
                one += sums_of_pairs[(part * all_pairs + pair) * kRowStride + i % kOutputs];
            sum += shares[pair] * one;
        }
        out[at] = narrow(kept + sum);
    }
    end_turn();
}

#define PERSISTENT(SUFFIX, FP8)                                                        \
    extern "C" __global__ void __launch_bounds__(kThreads, 1) steady_gate_up_##SUFFIX( \
            const void* weights, const float* scales, const bf16* rows,                \
            const int* table, bf16* active, const void* next_weights, int width,       \
            int inputs, int top_k, int row_count, int most_experts, int next_bytes,    \
            int ahead) {                                                               \
        gate_up<FP8>(weights, scales, rows, table, active, next_weights, width,        \
                     inputs, top_k, row_count, most_experts, next_bytes, ahead);       \
    }                                                                                  \
    extern "C" __global__ void __launch_bounds__(kThreads, 1) steady_down_##SUFFIX(    \
            const void* weights, const float* scales, const bf16* active,              \
            const int* table, const float* row_weights, const bf16* residual,          \
            bf16* out, int row_count, int top_k, int outputs, int inputs, int parts,   \
            int most_experts) {                                                        \
        down<FP8>(weights, scales, active, table, row_weights, residual, out,          \
                  row_count, top_k, outputs, inputs, parts, most_experts);             \
    }

PERSISTENT(bf16, false)
PERSISTENT(fp8, true)
