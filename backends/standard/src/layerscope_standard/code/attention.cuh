// Attention of the new rows over a paged cache, the context split over blocks.
//
// The query heads that share a KV head, times the new rows of a request, are the rows of
// the matrices here. Four warps take 16 of them: for the scores each has a quarter of
// the 64 tokens of a tile, for the sum over values a quarter of the elements of a head.
// What a block finds goes to `combine`, with the greatest score and the sum of shares.
//
// Macros: HEAD_DIM; TOKENS, new rows of a request; GROUP, query heads of a KV head;
// MATRIX_ROWS, their product rounded up to 16; PAGE_SIZE; STAGES, tiles that are in
// flight at once.
#pragma once
#include "product.cuh"

constexpr int kTokens = 64;  // of a tile
constexpr int kWarps = 4;    // that share 16 rows
constexpr int kThreads = MATRIX_ROWS / 16 * 32 * kWarps;
constexpr int kKeyStride = 2 * HEAD_DIM + 64;    // bytes: no bank twice in a load
constexpr int kValueStride = 2 * HEAD_DIM + 16;
constexpr int kShareStride = 2 * kTokens + 16;
constexpr int kKeyBytes = kTokens * kKeyStride;
constexpr int kStageBytes = kKeyBytes + kTokens * kValueStride;
constexpr int kSharedBytes = STAGES * kStageBytes + MATRIX_ROWS * kShareStride +
                             4 * kWarps * MATRIX_ROWS;
constexpr int kChunks = HEAD_DIM / 8;            // of 16 bytes in a head
constexpr int kTurn = kThreads / kChunks;        // tokens that the block copies at once
constexpr int kCopies = (kTokens + kTurn - 1) / kTurn;
constexpr int kSteps = HEAD_DIM / 32;
constexpr int kSlices = HEAD_DIM / kWarps / 8;   // of 8 elements, of a warp
constexpr int kEver = 0x7fffffff;                // a token that no request has
#define kNone (-kInfinity)

// What a block has to do: tiles of a request and KV head.
struct Block {
    unsigned char* shared;
    const bf16 *keys, *values;
    const int* pages;  // of the request
    int context, first_tile, tiles;

    __device__ __forceinline__ unsigned char* stage(int tile) const {
        return shared + tile % STAGES * kStageBytes;
    }

    // Whether nothing in the place of tile `tile` is written in this step.
    __device__ __forceinline__ bool is_old(int tile) const {
        return (first_tile + tile + 1) * kTokens <= context;
    }

    __device__ __forceinline__ int slot(int token) const {
        return load_constant_int(pages + token / PAGE_SIZE) * PAGE_SIZE +
               token % PAGE_SIZE;
    }

    // Where the tokens of a tile are that this thread copies from.
    __device__ __forceinline__ void find(int (&slots)[kCopies], int tile) const {
#pragma unroll
        for (int n = 0; n < kCopies; ++n) {
            const int token =
                (first_tile + tile) * kTokens + n * kTurn + (int)threadIdx.x / kChunks;
            const bool is_there = tile < tiles && token < context + TOKENS;
            slots[n] = slot(is_there ? token : 0);
        }
    }

    __device__ __forceinline__ void copy_tokens(
            unsigned char* to, int stride, const bf16* cache,
            const int (&slots)[kCopies], int tile, int from, int end) const {
        const int chunk = threadIdx.x % kChunks, kv_heads = gridDim.y;
#pragma unroll
        for (int n = 0; n < kCopies; ++n) {
            const int place = n * kTurn + (int)threadIdx.x / kChunks;
            const int token = (first_tile + tile) * kTokens + place;
            if (place >= kTokens || token < from || token >= end) continue;
            const long long head = (long long)slots[n] * kv_heads + blockIdx.y;
            copy(to + place * stride + 16 * chunk, cache + head * HEAD_DIM + 8 * chunk,
                 token < context + TOKENS);
        }
    }

    // Starts to copy the tokens from `from` and before `end` of a tile into its stage,
    // zeros for those that the request does not have; closes two groups of copies, for
    // keys and for values, if the tile gets no other tokens.
    __device__ __forceinline__ void fetch(
            const int (&slots)[kCopies], int tile, int from, int end, bool closes) const {
        const bool is_there = tile < tiles;
        unsigned char* to = stage(tile);
        if (is_there) copy_tokens(to, kKeyStride, keys, slots, tile, from, end);
        if (closes) close_copies();
        if (is_there)
            copy_tokens(to + kKeyBytes, kValueStride, values, slots, tile, from, end);
        if (closes) close_copies();
    }

    // What earlier steps have written of the first tiles: may be loaded early.
    __device__ __forceinline__ void fetch_old() const {
        int slots[STAGES][kCopies];
#pragma unroll
        for (int tile = 0; tile < STAGES; ++tile) find(slots[tile], tile);
#pragma unroll
        for (int tile = 0; tile < STAGES; ++tile)
            fetch(slots[tile], tile, 0, context, is_old(tile));
    }

    // The others of them, from token `from`.
    __device__ __forceinline__ void fetch_rest(int from) const {
#pragma unroll
        for (int tile = 0; tile < STAGES; ++tile) {
            if (is_old(tile)) continue;
            int slots[kCopies];
            find(slots, tile);
            fetch(slots, tile, from, kEver, true);
        }
    }
};

// The block's part of the work, a split of the context, where `shared` is its memory.
__device__ __forceinline__ Block block_of(
        unsigned char* shared, const bf16* keys, const bf16* values,
        const int* page_table, int pages_per_request, int context, int tiles_per_split) {
    const int all_tiles = (context + TOKENS + kTokens - 1) / kTokens;
    const int first_tile = blockIdx.x * tiles_per_split;
    return {shared, keys, values, page_table + blockIdx.z * pages_per_request, context,
            first_tile, min(tiles_per_split, all_tiles - first_tile)};
}

// The place of a row of the matrices among rows x query heads.
__device__ __forceinline__ int place_of(int matrix_row) {
    const int token = matrix_row / GROUP, head = matrix_row % GROUP;
    return (blockIdx.z * TOKENS + token) * gridDim.y * GROUP + blockIdx.y * GROUP + head;
}

__device__ __forceinline__ float greatest_of_four(float own) {
    own = fmaxf(own, __shfl_xor_sync(0xffffffffu, own, 1));
    return fmaxf(own, __shfl_xor_sync(0xffffffffu, own, 2));
}

__device__ __forceinline__ float sum_of_four(float own) {
    own += __shfl_xor_sync(0xffffffffu, own, 1);
    return own + __shfl_xor_sync(0xffffffffu, own, 2);
}

// Attention over the tiles of `block`, whose first ones are on their way. `query(i,
// half)` is what this thread has of elements 32 i and up of row g, or g + 8, of its 16:
// 16 bytes, from element 8 t.
template <class Query>
__device__ __forceinline__ void attend(
        const Block& block, const Query& query, float* parts, float2* stats,
        float scale) {
    unsigned char* shares = block.shared + STAGES * kStageBytes;
    float* reduced = (float*)(shares + MATRIX_ROWS * kShareStride);  // [4][rows]
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int warp = threadIdx.x / 32 % kWarps, sixteen = threadIdx.x / (32 * kWarps);
    const int rows[2] = {16 * sixteen + g, 16 * sixteen + 8 + g};
    float mixed[kSlices][4] = {}, greatest[2] = {kNone, kNone}, total[2] = {0.0f, 0.0f};
#pragma unroll 1
    for (int tile = 0; tile < block.tiles; ++tile) {
        const unsigned char* stage = block.stage(tile);
        wait_for_copies<2 * STAGES - 1>();
        __syncthreads();
        float scores[2][4] = {};
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
            const uint4 low = query(i, 0), high = query(i, 1);
#pragma unroll
            for (int eight = 0; eight < 2; ++eight) {
                const int token = 16 * warp + 8 * eight + g;
                const uint4 part =
                    *(const uint4*)(stage + token * kKeyStride + 64 * i + 16 * t);
                multiply(scores[eight], low.x, high.x, low.y, high.y, part.x, part.y);
                multiply(scores[eight], low.z, high.z, low.w, high.w, part.z, part.w);
            }
        }
        float best[2] = {kNone, kNone};
#pragma unroll
        for (int eight = 0; eight < 2; ++eight) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int token = (block.first_tile + tile) * kTokens + 16 * warp +
                                  8 * eight + 2 * t + i % 2;
                const int last = block.context + rows[i / 2] / GROUP;
                float& score = scores[eight][i];
                score = token <= last ? score * scale : kNone;
                best[i / 2] = fmaxf(best[i / 2], score);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            best[half] = greatest_of_four(best[half]);
            if (t == 0) reduced[warp * MATRIX_ROWS + rows[half]] = best[half];
        }
        meet(1 + sixteen, 32 * kWarps);
        float shrink[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float now = greatest[half];
#pragma unroll
            for (int other = 0; other < kWarps; ++other)
                now = fmaxf(now, reduced[other * MATRIX_ROWS + rows[half]]);
            const float finite = now == kNone ? 0.0f : now;
            shrink[half] = power_of_two(greatest[half] - finite);
            greatest[half] = now;
            total[half] *= shrink[half];
#pragma unroll
            for (int eight = 0; eight < 2; ++eight) {
                const float low = power_of_two(scores[eight][2 * half] - finite);
                const float high = power_of_two(scores[eight][2 * half + 1] - finite);
                total[half] += low + high;
                *(unsigned*)(shares + rows[half] * kShareStride +
                             2 * (16 * warp + 8 * eight + 2 * t)) = pack(low, high);
            }
        }
        wait_for_copies<2 * STAGES - 2>();
        __syncthreads();
#pragma unroll
        for (int slice = 0; slice < kSlices; ++slice) {
#pragma unroll
            for (int i = 0; i < 4; ++i) mixed[slice][i] *= shrink[i / 2];
        }
#pragma unroll
        for (int step = 0; step < kTokens / 16; ++step) {
            const unsigned char* low = shares + rows[0] * kShareStride + 32 * step + 4 * t;
            const unsigned char* high = low + 8 * kShareStride;
            const unsigned a0 = *(const unsigned*)low, a1 = *(const unsigned*)high;
            const unsigned a2 = *(const unsigned*)(low + 16);
            const unsigned a3 = *(const unsigned*)(high + 16);
            const unsigned char* value = stage + kKeyBytes +
                (16 * step + lane % 16) * kValueStride +
                2 * (warp * kSlices * 8 + lane / 16 * 8);
#pragma unroll
            for (int slice = 0; slice < kSlices; slice += 2) {
                unsigned b[4];
                load_transposed(b, value + 16 * slice);
                multiply(mixed[slice], a0, a1, a2, a3, b[0], b[1]);
                multiply(mixed[slice + 1], a0, a1, a2, a3, b[2], b[3]);
            }
        }
        if (tile + 1 < block.tiles) {  // all are done with the stage and the shares
            __syncthreads();
            int slots[kCopies];
            block.find(slots, tile + STAGES);
            block.fetch(slots, tile + STAGES, 0, kEver, true);
        }
    }

    dawdle();
    const long long places = (long long)gridDim.z * TOKENS * gridDim.y * GROUP;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float own = sum_of_four(total[half]);
        if (t == 0) reduced[warp * MATRIX_ROWS + rows[half]] = own;
        if (rows[half] >= TOKENS * GROUP) continue;
        const long long to = blockIdx.x * places + place_of(rows[half]);
#pragma unroll
        for (int slice = 0; slice < kSlices; ++slice)
            *(float2*)(parts + to * HEAD_DIM + (warp * kSlices + slice) * 8 + 2 * t) =
                make_float2(mixed[slice][2 * half], mixed[slice][2 * half + 1]);
    }
    meet(1 + sixteen, 32 * kWarps);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (warp || t || rows[half] >= TOKENS * GROUP) continue;
        float sum = 0.0f;
#pragma unroll
        for (int other = 0; other < kWarps; ++other)
            sum += reduced[other * MATRIX_ROWS + rows[half]];
        stats[blockIdx.x * places + place_of(rows[half])] =
            make_float2(greatest[half], sum);
    }
}
