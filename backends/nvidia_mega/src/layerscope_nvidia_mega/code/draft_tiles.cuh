// Tiles of w2 as a thread keeps them: its own bytes, in registers or in shared memory,
// where no other thread reads or writes.
#pragma once
#include "product.cuh"

constexpr int kWarps = WARPS;
constexpr int kKept = KEPT > 0 ? KEPT : 1;  // of an array, which cannot be empty
constexpr int kScales = (RANK + kQuantBlock - 1) / kQuantBlock;
constexpr int kUnitBytes = 64;       // of a row of w2
constexpr int kCopyBytes = 16 * 32;  // of a warp
template <bool kFp8>
constexpr int kUnits = RANK / kUnit<kFp8>;
template <bool kFp8>
constexpr int kWeightRowBytes = RANK * (kFp8 ? 1 : 2);
template <bool kFp8>
constexpr bool kWide = kFp8 && WIDE;
template <bool kFp8>
constexpr int kVectors = kWide<kFp8> ? 4 : 2;  // of 16 bytes, of a thread's unit
template <bool kFp8>
constexpr int kTileBytes = kUnits<kFp8> * kVectors<kFp8> * kCopyBytes;

template <bool kFp8>
constexpr int kRowBytes = 2 * RANK + (kFp8 ? 16 : 64);  // no bank twice in a load

// What a thread loads of a tile: 16 bytes of each unit, of output rows g and g + 8.
template <bool kFp8>
struct Source {
    const unsigned char* weights;
    bool is_there[2];

    __device__ __forceinline__ Source(const void* w2, int vocabulary, int tile) {
        const int output = tile * kOutputs + threadIdx.x % 32 / 4;
        weights = (const unsigned char*)w2 +
                  (long long)output * kWeightRowBytes<kFp8> + threadIdx.x % 4 * 16;
        is_there[0] = output < vocabulary;
        is_there[1] = output + 8 < vocabulary;
    }

    __device__ __forceinline__ const unsigned char* at(int unit, int half) const {
        return weights + 8 * half * kWeightRowBytes<kFp8> + unit * kUnitBytes;
    }

    __device__ __forceinline__ uint4 load(int unit, int half) const {
        return load_constant(at(unit, half), is_there[half]);
    }
};

// What a thread has of a unit, ready to be multiplied.
template <bool kFp8>
struct Unit {
    uint4 vectors[kVectors<kFp8>];

    Unit() = default;

    // As loaded: of output rows g and g + 8.
    __device__ __forceinline__ Unit(const uint4& low, const uint4& high) {
        if constexpr (!kWide<kFp8>) {
            vectors[0] = low;
            vectors[1] = high;
        } else {
            const unsigned lows[4] = {low.x, low.y, low.z, low.w};
            const unsigned highs[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                widen(lows[i], vectors[i].x, vectors[i].z);
                widen(highs[i], vectors[i].y, vectors[i].w);
            }
        }
    }

    // As `multiply_unit`.
    __device__ __forceinline__ void multiply_with(
            float (&sums)[4], const uint4 (&row)[2], float scale) const {
        if constexpr (!kWide<kFp8>) {
            multiply_unit<kFp8>(sums, vectors[0], vectors[1], row, scale, scale);
        } else {
            const unsigned rows[8] = {row[0].x, row[0].y, row[0].z, row[0].w,
                                      row[1].x, row[1].y, row[1].z, row[1].w};
            float part[4] = {};
#pragma unroll
            for (int i = 0; i < 4; ++i)
                multiply(part, vectors[i].x, vectors[i].y, vectors[i].z, vectors[i].w,
                         rows[2 * i], rows[2 * i + 1]);
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[i] += scale * part[i];
        }
    }
};

// A unit of a tile in shared memory, whose vectors are where each thread has put them.
template <bool kFp8>
__device__ __forceinline__ Unit<kFp8> unit_in(const unsigned char* tile, int number) {
    Unit<kFp8> unit;
#pragma unroll
    for (int i = 0; i < kVectors<kFp8>; ++i)
        unit.vectors[i] =
            *(const uint4*)(tile + (number * kVectors<kFp8> + i) * kCopyBytes);
    return unit;
}

// Where a thread's vectors of a tile were copied to, they are widened.
__device__ __forceinline__ void widen_tile(unsigned char* tile) {
    constexpr int kOwn = kUnits<true>;
    uint4 copied[kOwn][2];
#pragma unroll
    for (int i = 0; i < 2 * kOwn; ++i)
        copied[i / 2][i % 2] = *(const uint4*)(tile + i * kCopyBytes);
#pragma unroll
    for (int number = 0; number < kOwn; ++number) {
        const Unit<true> unit(copied[number][0], copied[number][1]);
#pragma unroll
        for (int i = 0; i < kVectors<true>; ++i)
            *(uint4*)(tile + (number * kVectors<true> + i) * kCopyBytes) =
                unit.vectors[i];
    }
}

// Of the blocks of a tile.
template <bool kFp8>
__device__ __forceinline__ void load_scales(
        float (&to)[kScales], const float* scales, int tile, bool is_there) {
    if constexpr (kFp8) {
        const int row = tile * kOutputs / kQuantBlock;
#pragma unroll
        for (int i = 0; i < kScales; ++i)
            to[i] = load_constant_float(scales + row * kScales + i, is_there);
    }
}

// Rows of w1, one a request.
struct Rows {
    const unsigned char* memory;
    int requests;

    // A thread's part of a unit.
    template <bool kFp8>
    __device__ __forceinline__ void load(uint4 (&row)[2], int unit) const {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        row[0] = row[1] = uint4{};
        if (g >= requests) return;
        const unsigned char* from = memory + g * kRowBytes<kFp8> +
                                    2 * kUnit<kFp8> * unit + (kFp8 ? 32 : 16) * t;
        row[0] = *(const uint4*)from;
        if constexpr (kFp8) row[1] = *(const uint4*)(from + 16);
    }
};

// The rows times the tile in registers and `kCount` tiles in shared memory, all at
// once; units of the tile `source` take the place of those that are done, if any must.
template <bool kFp8, int kCount>
__device__ __forceinline__ void multiply_tiles(
        float (&sums)[1 + kKept][4], Unit<kFp8> (&tile)[kUnits<kFp8>],
        const unsigned char* kept, const float (&scales)[1 + kKept][kScales],
        const Rows& rows, const Source<kFp8>& source, bool reloads) {
#pragma unroll
    for (int number = 0; number < kUnits<kFp8>; ++number) {
        const int block = number * kUnit<kFp8> / kQuantBlock;
        uint4 row[2];
        rows.load<kFp8>(row, number);
        tile[number].multiply_with(sums[0], row, scales[0][block]);
        if (reloads)
            tile[number] = Unit<kFp8>(source.load(number, 0), source.load(number, 1));
#pragma unroll
        for (int n = 0; n < kCount; ++n) {
            const unsigned char* const from = kept + n * kWarps * kTileBytes<kFp8>;
            unit_in<kFp8>(from, number)
                .multiply_with(sums[1 + n], row, scales[1 + n][block]);
        }
    }
}
