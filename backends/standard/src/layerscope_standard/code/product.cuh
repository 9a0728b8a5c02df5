// Products of a matrix with at most eight rows of activations.
//
// A warp takes tiles of 16 outputs as the first operand of an MMA and the rows as its
// eight columns. Every thread loads 16 bytes of a weight row straight into registers.
// Which k a register stands for does not matter as long as both operands agree, so the
// bytes are used where they arrive: thread 4 g + t has k of t of output rows g, g + 8
// and of activation row g.
#pragma once
#include "turns.cuh"

constexpr int kOutputs = 16;    // of a tile
constexpr int kMostRows = 8;
constexpr int kRowStride = 20;  // floats between rows of a tile's sums: no bank twice
constexpr int kTileSums = kMostRows * kRowStride;
constexpr int kQuantBlock = 128;

__device__ __forceinline__ float low_half(unsigned pair) {
    return __uint_as_float(pair << 16);
}

__device__ __forceinline__ float high_half(unsigned pair) {
    return __uint_as_float(pair & 0xffff0000u);
}

__device__ __forceinline__ bf16 narrow(float value) {
    return (bf16)(pack(value, 0.0f) & 0xffffu);
}

// Four fp8 e4m3 values, packed as packing.py says, as bf16 in order; exact. The fields of
// e4m3 are where bf16 has them, or one shift away, which leaves the exponent off by the
// difference of the biases; a product with 2^120 mends that, also for subnormal values.
__device__ __forceinline__ void widen(unsigned four, unsigned& first, unsigned& second) {
    constexpr unsigned kBias = 0x7b807b80u;
    first = multiply_pairs(four & 0x87f087f0u, kBias);
    second = multiply_pairs(
        ((four << 4) & 0x80f080f0u) | ((four >> 4) & 0x07000700u), kBias);
}

// A row of the matrix, as the thread sees it that loads from it.
struct Output {
    const unsigned char* weights;
    const float* scales;  // of its blocks, where weights are fp8
    bool is_there;
};

template <bool kFp8>
constexpr int kUnit = kFp8 ? 64 : 32;  // elements of k that a warp takes at a time

template <bool kFp8>
__device__ __forceinline__ int units_of(int inputs) {
    return (inputs + kUnit<kFp8> - 1) / kUnit<kFp8>;
}

// Row `row` of a matrix [.., inputs].
template <bool kFp8>
__device__ __forceinline__ Output output_of(
        const void* weights, const float* scales, int row, int inputs, bool is_there) {
    const int blocks = (inputs + kQuantBlock - 1) / kQuantBlock;
    const long long offset = (long long)row * inputs * (kFp8 ? 1 : 2);
    return {(const unsigned char*)weights + (is_there ? offset : 0),
            kFp8 ? scales + (is_there ? row / kQuantBlock * blocks : 0) : nullptr,
            is_there};
}

// One unit of k: the loaded registers of a thread times those of an activation row.
template <bool kFp8>
__device__ __forceinline__ void multiply_unit(
        float (&sums)[4], const uint4& low, const uint4& high, const uint4 (&row)[2],
        float low_scale, float high_scale) {
    if constexpr (!kFp8) {
        multiply(sums, low.x, high.x, low.y, high.y, row[0].x, row[0].y);
        multiply(sums, low.z, high.z, low.w, high.w, row[0].z, row[0].w);
    } else {
        const unsigned lows[4] = {low.x, low.y, low.z, low.w};
        const unsigned highs[4] = {high.x, high.y, high.z, high.w};
        const unsigned rows[8] = {row[0].x, row[0].y, row[0].z, row[0].w,
                                  row[1].x, row[1].y, row[1].z, row[1].w};
        float part[4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            unsigned a0, a1, a2, a3;
            widen(lows[i], a0, a2);
            widen(highs[i], a1, a3);
            multiply(part, a0, a1, a2, a3, rows[2 * i], rows[2 * i + 1]);
        }
        sums[0] += low_scale * part[0];
        sums[1] += low_scale * part[1];
        sums[2] += high_scale * part[2];
        sums[3] += high_scale * part[3];
    }
}

// Adds to the sums of a warp's tiles what the units `first`, `first + step`, … below
// `end` contribute. `row` is activation row g; each of the outputs has rows g and g + 8
// of a tile. A step of 1 leaves a warp what lies together in memory, which the memory
// gives faster. All loads of `kDepth` units are in flight at once. Where `kWaits`, the turn
// is waited for once the first weights are on their way.
template <bool kFp8, int kTiles, int kDepth, bool kWaits = false>
__device__ __forceinline__ void accumulate(
        float (&sums)[kTiles][4], const Output (&outputs)[kTiles][2], const bf16* row,
        bool has_row, int inputs, int first, int end, int step) {
    constexpr int kVector = kFp8 ? 16 : 8;  // elements in 16 bytes of weights
    const int own = threadIdx.x % 4 * kVector;
#pragma unroll 1
    for (int start = first; start < end; start += kDepth * step) {
        uint4 weights[kDepth][kTiles][2], activations[kDepth][2];
        float scales[kDepth][kTiles][2];
#pragma unroll
        for (int n = 0; n < kDepth; ++n) {
            const int unit = start + n * step, k = unit * kUnit<kFp8> + own;
            const bool is_inside = unit < end && k < inputs;
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const Output& output = outputs[tile][half];
                    const bool is_there = is_inside && output.is_there;
                    weights[n][tile][half] = load_constant(
                        output.weights + (kFp8 ? k : 2 * k), is_there);
                    // Sums of this thread are of other inputs than those it loads.
                    if constexpr (kFp8)
                        scales[n][tile][half] = load_constant_float(
                            output.scales + unit * kUnit<kFp8> / kQuantBlock,
                            unit < end && output.is_there);
                }
            }
        }
        if constexpr (kWaits) {
            if (start == first) wait_turn();
        }
#pragma unroll
        for (int n = 0; n < kDepth; ++n) {
            const int unit = start + n * step, k = unit * kUnit<kFp8> + own;
            const bool is_there = has_row && unit < end && k < inputs;
            activations[n][0] = load_handed(row + k, is_there);
            if constexpr (kFp8) activations[n][1] = load_handed(row + k + 8, is_there);
        }
#pragma unroll
        for (int n = 0; n < kDepth; ++n) {
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile)
                multiply_unit<kFp8>(
                    sums[tile], weights[n][tile][0], weights[n][tile][1],
                    activations[n], scales[n][tile][0], scales[n][tile][1]);
        }
    }
}

// Puts the sums of a warp's tile where all threads find them: [8 rows][16 outputs],
// rows `kRowStride` floats apart.
__device__ __forceinline__ void store_sums(float* to, const float (&sums)[4]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    to[2 * t * kRowStride + g] = sums[0];
    to[(2 * t + 1) * kRowStride + g] = sums[1];
    to[2 * t * kRowStride + g + 8] = sums[2];
    to[(2 * t + 1) * kRowStride + g + 8] = sums[3];
}
