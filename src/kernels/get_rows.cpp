#include "kernels/get_rows.h"

#include "kernels/pack.h"

namespace pocketfleet::kernels {

namespace {

bool supports(const ggml_tensor* tensor) {
  if (tensor->op != GGML_OP_GET_ROWS) return false;
  const ggml_tensor* weight = tensor->src[0];
  const ggml_tensor* ids = tensor->src[1];
  return weight->ne[2] == 1 && weight->ne[3] == 1 && layout_for(weight->type, weight->ne[0], weight->ne[1]) != Layout::kNone &&
         ids->type == GGML_TYPE_I32 && ids->ne[1] == 1 && ids->ne[2] == 1 && ids->ne[3] == 1 && ids->nb[0] == sizeof(int32_t) &&
         tensor->type == GGML_TYPE_F32 && tensor->nb[0] == sizeof(float);
}

size_t row_bytes(const ggml_tensor* tensor) {
  return align_up(ggml_row_size(tensor->src[0]->type, tensor->src[0]->ne[0]));
}

size_t scratch_bytes(const ggml_tensor* tensor, int threads) {
  return row_bytes(tensor) * static_cast<size_t>(threads);
}

void run(const OpCall& call) {
  const ggml_tensor* weight = call.tensor->src[0];
  const auto* ids = static_cast<const int32_t*>(call.tensor->src[1]->data);
  const Layout layout = layout_for(weight->type, weight->ne[0], weight->ne[1]);
  const auto to_float = ggml_get_type_traits(weight->type)->to_float;
  std::byte* row = call.scratch + row_bytes(call.tensor) * static_cast<size_t>(call.thread);
  for (int64_t i = call.thread; i < call.tensor->src[1]->ne[0]; i += call.threads) {
    auto* out =
        reinterpret_cast<float*>(static_cast<std::byte*>(call.tensor->data) + static_cast<size_t>(i) * call.tensor->nb[1]);
    GGML_ASSERT(ids[i] >= 0 && ids[i] < weight->ne[1]);
    unpack_row(layout, static_cast<const std::byte*>(weight->data), weight->ne[0], ids[i], row);
    to_float(row, out, weight->ne[0]);
  }
}

}  // namespace

const Op kGetPackedRows = {"get_rows", GGML_OP_GET_ROWS, supports, scratch_bytes, run};

}  // namespace pocketfleet::kernels
