#include "kernels/weights.h"

#include <ggml-backend-impl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/op.h"
#include "kernels/pack.h"

namespace pocketfleet::kernels {

namespace {

constexpr size_t kHugePageBytes = 2u << 20;
// Below this, starting a thread takes longer than packing.
constexpr size_t kBytesPerThread = 1u << 20;
constexpr int64_t kPartsAtATime = 16;

Layout layout_of(const ggml_tensor* tensor) {
  return tensor->ne[2] == 1 && tensor->ne[3] == 1 ? layout_for(tensor->type, tensor->ne[0], tensor->ne[1]) : Layout::kNone;
}

// Calls work(part) for all parts, on as many threads as there are processors and as are worth it.
template <typename Work>
void for_parts(int64_t parts, size_t bytes, const Work& work) {
  std::atomic<int64_t> next{0};
  const auto run = [&] {
    for (int64_t first; (first = next.fetch_add(kPartsAtATime)) < parts;) {
      for (int64_t p = first; p < std::min(first + kPartsAtATime, parts); ++p) work(p);
    }
  };
  const size_t most = std::min<size_t>(std::thread::hardware_concurrency(), bytes / kBytesPerThread);
  std::vector<std::thread> others;
  for (size_t i = 1; i < most; ++i) others.emplace_back(run);
  run();
  for (std::thread& thread : others) thread.join();
}

void pack(ggml_tensor* tensor, const void* file) {
  const Layout layout = layout_of(tensor);
  const int64_t panels = (tensor->ne[1] + kUnitRows - 1) / kUnitRows * (kUnitRows / kPanelRows);
  for_parts(panels, ggml_nbytes(tensor), [&](int64_t panel) {
    pack_panel(layout, static_cast<const std::byte*>(file), tensor->ne[0], tensor->ne[1], panel,
               static_cast<std::byte*>(tensor->data));
  });
}

const char* type_name(ggml_backend_buffer_type_t) {
  return "Pocketfleet";
}

void buffer_free(ggml_backend_buffer_t buffer) {
  std::free(buffer->context);
}

void* buffer_base(ggml_backend_buffer_t buffer) {
  return buffer->context;
}

// Lets `write` change the file's form of a tensor.
template <typename Write>
void rewrite(ggml_tensor* tensor, const Write& write) {
  if (layout_of(tensor) == Layout::kNone) {
    write(static_cast<std::byte*>(tensor->data));
    return;
  }
  std::vector<std::byte> file(ggml_nbytes(tensor));
  read_weight(tensor, file.data());
  write(file.data());
  pack(tensor, file.data());
}

void buffer_memset(ggml_backend_buffer_t, ggml_tensor* tensor, uint8_t value, size_t offset, size_t size) {
  rewrite(tensor, [&](std::byte* file) { std::memset(file + offset, value, size); });
}

void buffer_set(ggml_backend_buffer_t, ggml_tensor* tensor, const void* data, size_t offset, size_t size) {
  if (layout_of(tensor) != Layout::kNone && offset == 0 && size == ggml_nbytes(tensor)) {
    pack(tensor, data);
    return;
  }
  rewrite(tensor, [&](std::byte* file) { std::memcpy(file + offset, data, size); });
}

void buffer_get(ggml_backend_buffer_t, const ggml_tensor* tensor, void* data, size_t offset, size_t size) {
  if (layout_of(tensor) == Layout::kNone) {
    std::memcpy(data, static_cast<const std::byte*>(tensor->data) + offset, size);
    return;
  }
  std::vector<std::byte> file(ggml_nbytes(tensor));
  read_weight(tensor, file.data());
  std::memcpy(data, file.data() + offset, size);
}

void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
  std::memset(buffer->context, value, buffer->size);
}

ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t size) {
  const size_t align = size >= kHugePageBytes ? kHugePageBytes : kCacheLine;
  const size_t bytes = align_up(std::max<size_t>(size, 1), align);
  void* memory = std::aligned_alloc(align, bytes);
  if (memory == nullptr) return nullptr;
  // A tenth faster where every token reads all of it; a system without huge pages says no, and that is all right.
  if (align == kHugePageBytes) (void)madvise(memory, bytes, MADV_HUGEPAGE);
  ggml_backend_buffer_i interface {};
  interface.free_buffer = buffer_free;
  interface.get_base = buffer_base;
  interface.memset_tensor = buffer_memset;
  interface.set_tensor = buffer_set;
  interface.get_tensor = buffer_get;
  interface.clear = buffer_clear;
  return ggml_backend_buffer_init(type, interface, memory, size);
}

size_t type_alignment(ggml_backend_buffer_type_t) {
  return kCacheLine;
}

// Kernels read up to a few blocks ahead of a panel's end, never past the buffer: prefetches do not fault.
size_t type_tensor_bytes(ggml_backend_buffer_type_t, const ggml_tensor* tensor) {
  const Layout layout = layout_of(tensor);
  return layout == Layout::kNone ? ggml_nbytes(tensor) : packed_bytes(layout, tensor->ne[0], tensor->ne[1]);
}

// Not host memory to ggml: it would read files straight into it, and ggml-cpu would take it for the file's form.
bool type_is_host(ggml_backend_buffer_type_t) {
  return false;
}

}  // namespace

ggml_backend_buffer_type_t packed_buffer_type() {
  static ggml_backend_buffer_type type = {
      {type_name, type_alloc, type_alignment, nullptr, type_tensor_bytes, type_is_host}, nullptr, nullptr};
  return &type;
}

bool is_packed(const ggml_tensor* tensor) {
  if (tensor == nullptr) return false;
  const ggml_tensor* owner = tensor->view_src != nullptr ? tensor->view_src : tensor;
  return owner->buffer != nullptr && owner->buffer->buft == packed_buffer_type();
}

void read_weight(const ggml_tensor* weight, std::byte* out) {
  const Layout layout = layout_of(weight);
  for_parts(weight->ne[1], ggml_nbytes(weight), [&](int64_t row) {
    unpack_row(layout, static_cast<const std::byte*>(weight->data), weight->ne[0], row,
               out + static_cast<size_t>(row) * weight->nb[1]);
  });
}

}  // namespace pocketfleet::kernels
