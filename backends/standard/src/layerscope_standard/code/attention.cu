// Attention of queries that a kernel before has rotated, over a cache that has all keys
// and values.
#include "attention.cuh"

// Grid: splits, KV heads, requests. Block: 128 threads for every 16 rows.
extern "C" __global__ void __launch_bounds__(kThreads, 1) attention(
        const bf16* queries, const bf16* keys, const bf16* values, const int* page_table,
        float* parts, float2* stats, int pages_per_request, int context,
        int tiles_per_split, float scale) {
    DYNAMIC_SHARED(shared);
    begin_turn();
    if constexpr (!LOADS_EARLY) wait_turn();
    const Block block = block_of(shared, keys, values, page_table, pages_per_request,
                                 context, tiles_per_split);
    block.fetch_old();
    if constexpr (LOADS_EARLY) wait_turn();
    block.fetch_rest(context);
    uint4 held[kSteps][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = threadIdx.x / (32 * kWarps) * 16 + 8 * half + threadIdx.x % 32 / 4;
        const bool is_there = row < TOKENS * GROUP;
        const bf16* own =
            queries + (is_there ? (long long)place_of(row) * HEAD_DIM : 0);
#pragma unroll
        for (int i = 0; i < kSteps; ++i)
            held[i][half] = load_handed(own + 32 * i + 8 * (threadIdx.x % 4), is_there);
    }
    attend(block, [&](int i, int half) { return held[i][half]; }, parts, stats, scale);
    end_turn();
}
