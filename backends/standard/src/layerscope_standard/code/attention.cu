// Attention of the new rows over a paged cache, the context split over blocks.
//
// The query heads that share a KV head, times the new rows of a request, are the rows of
// the matrices here. Four warps take 16 of them: for the scores each has a quarter of
// the 64 tokens of a tile, for the sum over values a quarter of the elements of a head.
// What a block finds goes to `combine`, with the greatest score and the sum of shares.
#include "product.cuh"

constexpr int kTokens = 64;
constexpr int kWarps = 4;  // that share 16 rows
constexpr int kKeyStride = 2 * HEAD_DIM + 64;    // bytes: no bank twice in a load
constexpr int kValueStride = 2 * HEAD_DIM + 16;
constexpr int kShareStride = 2 * kTokens + 16;
constexpr int kKeyBytes = kTokens * kKeyStride;
constexpr int kStageBytes = kKeyBytes + kTokens * kValueStride;
constexpr int kChunks = HEAD_DIM / 8;            // of 16 bytes in a head
constexpr int kSteps = HEAD_DIM / 32;
constexpr int kSlices = HEAD_DIM / kWarps / 8;   // of 8 elements, of a warp
#define kNone (-kInfinity)

// Where a request's tokens are, and which of them its rows see.
struct Pages {
    const int* table;
    int page_size, context, total;

    __device__ __forceinline__ long long slot(int token) const {
        return (long long)load_constant_int(table + token / page_size) * page_size +
               token % page_size;
    }
};

__device__ __forceinline__ void copy_tokens(
        unsigned char* to, int stride, const bf16* cache, const Pages& pages, int first,
        int kv_head, int kv_heads) {
    for (int i = threadIdx.x; i < kTokens * kChunks; i += blockDim.x) {
        const int token = i / kChunks, chunk = i % kChunks;
        const bool is_there = first + token < pages.total;
        const long long slot = is_there ? pages.slot(first + token) : 0;
        copy(to + token * stride + 16 * chunk,
             cache + (slot * kv_heads + kv_head) * HEAD_DIM + 8 * chunk, is_there);
    }
    close_copies();
}

__device__ __forceinline__ float greatest_of_four(float own) {
    own = fmaxf(own, __shfl_xor_sync(0xffffffffu, own, 1));
    return fmaxf(own, __shfl_xor_sync(0xffffffffu, own, 2));
}

__device__ __forceinline__ float sum_of_four(float own) {
    own += __shfl_xor_sync(0xffffffffu, own, 1);
    return own + __shfl_xor_sync(0xffffffffu, own, 2);
}

// Grid: splits, KV heads, requests. Block: 128 threads for every 16 rows.
extern "C" __global__ void __launch_bounds__(MATRIX_ROWS / 16 * 32 * kWarps, 1) attention(
        const bf16* queries, const bf16* keys, const bf16* values, const int* page_table,
        float* parts, float2* stats, int tokens, int group, int page_size,
        int pages_per_request, int context, int tiles_per_split, float scale) {
    DYNAMIC_SHARED(shared);
    unsigned char* shares = shared + STAGES * kStageBytes;
    float* reduced = (float*)(shares + MATRIX_ROWS * kShareStride);  // [4][rows]
    begin_turn();
    if constexpr (!LOADS_EARLY) wait_turn();

    const int split = blockIdx.x, kv_head = blockIdx.y, request = blockIdx.z;
    const int kv_heads = gridDim.y, query_heads = kv_heads * group;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int warp = threadIdx.x / 32 % kWarps, sixteen = threadIdx.x / (32 * kWarps);
    const Pages pages = {page_table + request * pages_per_request, page_size, context,
                         context + tokens};
    const int all_tiles = (pages.total + kTokens - 1) / kTokens;
    const int first_tile = split * tiles_per_split;
    const int tiles = min(tiles_per_split, all_tiles - first_tile);

    // Tile `tile` of this split into its stage; beyond the end nothing, in two groups.
    auto fetch = [&](int tile) {
        unsigned char* stage = shared + tile % STAGES * kStageBytes;
        const int first = tile < tiles ? (first_tile + tile) * kTokens : pages.total;
        if (tile < tiles) {
            copy_tokens(stage, kKeyStride, keys, pages, first, kv_head, kv_heads);
            copy_tokens(stage + kKeyBytes, kValueStride, values, pages, first, kv_head,
                        kv_heads);
        } else {
            close_copies();
            close_copies();
        }
    };
    // What earlier steps have written may be loaded early, tokens of this one may not.
    bool waits = LOADS_EARLY;
#pragma unroll
    for (int tile = 0; tile < STAGES; ++tile) {
        if (waits && (first_tile + tile + 1) * kTokens > context) {
            wait_turn();
            waits = false;
        }
        fetch(tile);
    }
    if (waits) wait_turn();

    uint4 query[kSteps][2];
    int limit[2];
    long long place[2];  // of the two rows, among rows x query heads
    bool is_there[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int matrix_row = 16 * sixteen + 8 * half + g;
        const int token = matrix_row / group;
        is_there[half] = token < tokens;
        limit[half] = context + token;
        place[half] = is_there[half]
            ? (long long)(request * tokens + token) * query_heads + kv_head * group +
                  matrix_row % group
            : 0;
#pragma unroll
        for (int i = 0; i < kSteps; ++i)
            query[i][half] = load_handed(
                queries + place[half] * HEAD_DIM + 32 * i + 8 * t, is_there[half]);
    }

    float mixed[kSlices][4] = {}, greatest[2] = {kNone, kNone}, total[2] = {0.0f, 0.0f};
    for (int tile = 0; tile < tiles; ++tile) {
        const unsigned char* stage = shared + tile % STAGES * kStageBytes;
        wait_for_copies<2 * STAGES - 1>();
        __syncthreads();
        float scores[2][4] = {};
#pragma unroll
        for (int eight = 0; eight < 2; ++eight) {
            const unsigned char* key = stage + (16 * warp + 8 * eight + g) * kKeyStride;
#pragma unroll
            for (int i = 0; i < kSteps; ++i) {
                const uint4 part = *(const uint4*)(key + 64 * i + 16 * t);
                const uint4 &low = query[i][0], &high = query[i][1];
                multiply(scores[eight], low.x, high.x, low.y, high.y, part.x, part.y);
                multiply(scores[eight], low.z, high.z, low.w, high.w, part.z, part.w);
            }
        }
        float best[2] = {kNone, kNone};
#pragma unroll
        for (int eight = 0; eight < 2; ++eight) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int token = (first_tile + tile) * kTokens + 16 * warp + 8 * eight +
                                  2 * t + i % 2;
                float& score = scores[eight][i];
                score = token <= limit[i / 2] ? score * scale : kNone;
                best[i / 2] = fmaxf(best[i / 2], score);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            best[half] = greatest_of_four(best[half]);
            if (t == 0)
                reduced[warp * MATRIX_ROWS + 16 * sixteen + 8 * half + g] = best[half];
        }
        meet(1 + sixteen, 32 * kWarps);
        float shrink[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int matrix_row = 16 * sixteen + 8 * half + g;
            float now = greatest[half];
#pragma unroll
            for (int other = 0; other < kWarps; ++other)
                now = fmaxf(now, reduced[other * MATRIX_ROWS + matrix_row]);
            const float finite = now == kNone ? 0.0f : now;
            shrink[half] = power_of_two(greatest[half] - finite);
            greatest[half] = now;
            total[half] *= shrink[half];
#pragma unroll
            for (int eight = 0; eight < 2; ++eight) {
                const float low = power_of_two(scores[eight][2 * half] - finite);
                const float high = power_of_two(scores[eight][2 * half + 1] - finite);
                total[half] += low + high;
                *(unsigned*)(shares + matrix_row * kShareStride +
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
            const unsigned char* low =
                shares + (16 * sixteen + g) * kShareStride + 32 * step + 4 * t;
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
        if (tile + 1 < tiles) {  // all are done with the stage and the shares
            __syncthreads();
            fetch(tile + STAGES);
        }
    }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int matrix_row = 16 * sixteen + 8 * half + g;
        const float own = sum_of_four(total[half]);
        if (t == 0) reduced[warp * MATRIX_ROWS + matrix_row] = own;
        meet(1 + sixteen, 32 * kWarps);
        float sum = 0.0f;
#pragma unroll
        for (int other = 0; other < kWarps; ++other)
            sum += reduced[other * MATRIX_ROWS + matrix_row];
        if (!is_there[half]) continue;
        const long long places = (long long)gridDim.z * tokens * query_heads;
        const long long to = split * places + place[half];
        if (warp == 0 && t == 0) stats[to] = make_float2(greatest[half], sum);
#pragma unroll
        for (int slice = 0; slice < kSlices; ++slice)
            *(float2*)(parts + to * HEAD_DIM + (warp * kSlices + slice) * 8 + 2 * t) =
                make_float2(mixed[slice][2 * half], mixed[slice][2 * half + 1]);
    }
    end_turn();
}
