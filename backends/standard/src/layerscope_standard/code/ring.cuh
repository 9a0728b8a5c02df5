// Weights on their way to a warp that never stops: a ring of stages in shared memory.
//
// Every thread copies its own 16 bytes of what the warp needs and reads them back, so
// that nobody waits for another, and what is on its way needs no registers: the next
// tile's weights are asked for while the present one is multiplied. A stage is 128 bytes
// of each of the tile's 16 rows, in two units of k; see product.cuh.
//
// Where weights are fp8, both operands are multiplied as float16. That is exact for
// weights; activations are scaled by a power of two a row, the largest to 2^14, which
// keeps all bits of those above 2^-30 of it.
#pragma once
#include "table.cuh"

constexpr int kStageBytes = 128;  // of a row
constexpr int kPieces = 4;        // of 16 bytes that a thread has in a stage

template <bool kFp8>
__device__ __forceinline__ int row_bytes_of(int inputs) {
    return inputs * (kFp8 ? 1 : 2);
}

__device__ __forceinline__ int stages_of(int row_bytes) {
    return (row_bytes + kStageBytes - 1) / kStageBytes;
}

// The rows of a tile that a thread loads from, and their scales where weights are fp8.
struct Source {
    const unsigned char* low;
    const unsigned char* high;
    const float* low_scales;
    const float* high_scales;
};

template <bool kFp8, int kDepth>
struct Ring {
    static constexpr int kScaleBytes = kFp8 ? (8 * kDepth + 15) / 16 * 16 : 0;
    static constexpr int kBytes = 32 * 16 * kPieces * kDepth + kScaleBytes;  // of a warp

    unsigned char* own;  // a warp's part of shared memory
    int slot = 0;

    __device__ __forceinline__ uint4* pieces() const {
        return (uint4*)own + slot * kPieces * 32 + threadIdx.x % 32;
    }

    __device__ __forceinline__ float* scales() const {
        return (float*)(own + 32 * 16 * kPieces * kDepth) + 2 * slot;
    }

    __device__ __forceinline__ void advance() { slot = slot + 1 == kDepth ? 0 : slot + 1; }

    // Asks for a stage of `source`, into the slot that is next.
    __device__ __forceinline__ void fill(
            const Source& source, int stage, int row_bytes) const {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int unit = 0; unit < 2; ++unit) {
            const int at = stage * kStageBytes + unit * 64 + lane % 4 * 16;
            const bool is_there = at < row_bytes;
            copy(pieces() + 64 * unit, source.low + at, is_there);
            copy(pieces() + 64 * unit + 32, source.high + at, is_there);
        }
        if constexpr (kFp8) {  // a stage is a block of k
            if (lane < 2)
                copy_word(scales() + lane,
                          (lane ? source.high_scales : source.low_scales) + stage);
        }
    }

    // Adds the product of the slot that is next with the stage's activations of row g.
    __device__ __forceinline__ void multiply_stage(
            float (&sums)[4], const unsigned char* row, int stage) const {
        constexpr int kBytesOfUnit = kFp8 ? 128 : 64;  // of activations
        const uint4* from = pieces();
        row += stage * 2 * kBytesOfUnit + threadIdx.x % 4 * (kFp8 ? 32 : 16);
        float parts[2][4] = {};
#pragma unroll
        for (int unit = 0; unit < 2; ++unit) {
            const uint4 low = from[64 * unit], high = from[64 * unit + 32];
            const uint4* given = (const uint4*)(row + unit * kBytesOfUnit);
            if constexpr (kFp8) {
                const uint4 rows[2] = {given[0], given[1]};
                multiply_narrow(parts[unit], low, high, rows);
            } else {
                const uint4 rows[2] = {given[0], {}};
                multiply_unit<false>(sums, low, high, rows, 1.0f, 1.0f);
            }
        }
        if constexpr (kFp8) {
            const float low_scale = scales()[0], high_scale = scales()[1];
            sums[0] += low_scale * (parts[0][0] + parts[1][0]);
            sums[1] += low_scale * (parts[0][1] + parts[1][1]);
            sums[2] += high_scale * (parts[0][2] + parts[1][2]);
            sums[3] += high_scale * (parts[0][3] + parts[1][3]);
        }
    }

    // One unit of fp8 weights and float16 activations.
    static __device__ __forceinline__ void multiply_narrow(
            float (&sums)[4], const uint4& low, const uint4& high,
            const uint4 (&row)[2]) {
        const unsigned lows[4] = {low.x, low.y, low.z, low.w};
        const unsigned highs[4] = {high.x, high.y, high.z, high.w};
        const unsigned rows[8] = {row[0].x, row[0].y, row[0].z, row[0].w,
                                  row[1].x, row[1].y, row[1].z, row[1].w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            unsigned a0, a1, a2, a3;
            widen_to_halves(lows[i], a0, a2);
            widen_to_halves(highs[i], a1, a3);
            multiply_halves(sums, a0, a1, a2, a3, rows[2 * i], rows[2 * i + 1]);
        }
    }
};

// Activations of a block: rows of float16 or bf16, then one of zeros for the columns of
// a tile that no row is in, all padded with zeros to whole stages.
struct Rows {
    unsigned char* own;
    float* factors;  // of every row: what its float16 values are to be multiplied with
    int count, pitch;

    // Rows of both parities are in different banks.
    template <bool kFp8>
    static __device__ __forceinline__ Rows at(unsigned char* to, int count, int stages) {
        const int pitch = stages * kStageBytes * (kFp8 ? 2 : 1) + 64;
        return {to, (float*)(to + (count + 1) * pitch), count, pitch};
    }

    __device__ __forceinline__ const unsigned char* row(int number) const {
        return own + number * pitch;
    }

    // All rows of `from` as they are; a barrier must follow.
    __device__ __forceinline__ void load(const bf16* from, int inputs, int threads) const {
        constexpr int kTogether = 6;
        const int pieces = pitch / 16, all = (count + 1) * pieces;
#pragma unroll 1
        for (int first = threadIdx.x; first < all; first += kTogether * threads) {
            uint4 loaded[kTogether];
#pragma unroll
            for (int n = 0; n < kTogether; ++n) {
                const int i = first + n * threads, number = i / pieces;
                const int at = i % pieces * 8;
                loaded[n] = load_handed(from + (long long)number * inputs + at,
                                        number < count && at < inputs);
            }
#pragma unroll
            for (int n = 0; n < kTogether; ++n) {
                const int i = first + n * threads;
                if (i < all) ((uint4*)own)[i] = loaded[n];
            }
        }
    }

    // Turns loaded rows into float16, a warp a row; a barrier must follow.
    __device__ __forceinline__ void narrow_rows(int warps) const {
        const int lane = threadIdx.x % 32;
        for (int number = threadIdx.x / 32; number < count; number += warps) {
            unsigned* words = (unsigned*)row(number);
            unsigned most = 0;
            for (int i = lane; i < pitch / 4; i += 32) {
                const unsigned pair = words[i];
                most = max(most, max(pair & 0x7fffu, pair >> 16 & 0x7fffu));
            }
            most = __reduce_max_sync(0xffffffffu, most);
            const unsigned exponent = min(268u - (most >> 7), 253u);
            const float factor = __uint_as_float(exponent << 23);
            for (int i = lane; i < pitch / 4; i += 32) {
                const unsigned pair = words[i];
                words[i] = pack_halves(low_half(pair) * factor, high_half(pair) * factor);
            }
            if (lane == 0) factors[number] = __uint_as_float((254u - exponent) << 23);
        }
    }
};
