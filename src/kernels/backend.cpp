#include "kernels/backend.h"

#include <ggml-backend-impl.h>
#include <ggml-backend.h>
#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "kernels/get_rows.h"
#include "kernels/isa.h"
#include "kernels/weights.h"

namespace pocketfleet::kernels {

namespace {

thread_local int t_off = 0;

const Isa* the_isa() {
  static const Isa* const isa = usable_isas().empty() ? nullptr : usable_isas().front();
  return isa;
}

std::mutex observer_lock;
std::function<void(const Computed&)> the_observer;

const Op* op_for(const ggml_tensor* node) {
  for (const Op* op : the_isa()->ops) {
    if (op->kind == node->op && op->supports(node)) return op;
  }
  return nullptr;
}

// ---- one context's backend

// Memory that grows and is not initialised.
class Scratch {
 public:
  ~Scratch() { std::free(memory_); }
  bool grow(size_t bytes) {
    if (bytes <= bytes_) return true;
    std::free(memory_);
    memory_ = static_cast<std::byte*>(std::aligned_alloc(kCacheLine, align_up(bytes)));
    bytes_ = memory_ == nullptr ? 0 : align_up(bytes);
    return memory_ != nullptr;
  }
  std::byte* data() const { return memory_; }

 private:
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
};

struct Context;

// A node of the graph that a kernel computes, and what it was before it became a custom operation.
struct Node {
  ggml_tensor* tensor;
  ggml_op kind;
  alignas(8) int32_t params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
  const Op* op;  // nullptr: matmul
  Context* context;
};

struct Context {
  ggml_backend_t cpu = nullptr;
  int threads = GGML_DEFAULT_N_THREADS;
  Team team;
  Activations activations;
  Scratch activation_memory;
  Scratch scratch;
  std::vector<Node> nodes;
  std::function<void(const Computed&)> observer;
};

// As ggml keeps them in a custom operation's op_params; matches_ggml() looks whether that still holds.
struct CustomParams {
  ggml_custom_op_t run;
  int tasks;
  void* data;
};

void run_node(ggml_tensor* tensor, int thread, int threads, void* data) {
  auto* node = static_cast<Node*>(data);
  Context& context = *node->context;
  const OpCall call{tensor, node->params, thread, threads, context.scratch.data(), &context.team};
  if (node->op == nullptr) {
    run_matmul(call, *the_isa()->matmul, context.activations);
  } else {
    node->op->run(call);
  }
  if (context.observer) {
    context.team.barrier(threads);
    if (thread == 0) context.observer({tensor, node->params, node->kind});
    context.team.barrier(threads);
  }
}

bool matches_ggml() {
  const ggml_init_params params{16 * ggml_tensor_overhead(), nullptr, true};
  const std::unique_ptr<ggml_context, void (*)(ggml_context*)> context(ggml_init(params), ggml_free);
  ggml_tensor* made =
      ggml_custom_4d(context.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, run_node, GGML_N_TASKS_MAX, context.get());
  CustomParams ours{};
  ours.run = run_node;
  ours.tasks = GGML_N_TASKS_MAX;
  ours.data = context.get();
  CustomParams theirs{};
  std::memcpy(&theirs, made->op_params, sizeof theirs);
  return theirs.run == ours.run && theirs.tasks == ours.tasks && theirs.data == ours.data;
}

const char* backend_name(ggml_backend_t) {
  return "Pocketfleet";
}

void backend_free(ggml_backend_t backend) {
  auto* context = static_cast<Context*>(backend->context);
  if (context->cpu != nullptr) ggml_backend_free(context->cpu);
  delete context;
  delete backend;
}

ggml_status backend_compute(ggml_backend_t backend, ggml_cgraph* graph) {
  auto& context = *static_cast<Context*>(backend->context);
  const int count = ggml_graph_n_nodes(graph);
  context.nodes.clear();
  context.nodes.reserve(static_cast<size_t>(count));
  context.activations.source = nullptr;
  size_t activation_bytes = 0, scratch_bytes = 0;
  for (int i = 0; i < count; ++i) {
    ggml_tensor* tensor = ggml_graph_node(graph, i);
    Node node{tensor, tensor->op, {}, nullptr, &context};
    if (tensor->op == GGML_OP_GET_ROWS && is_packed(tensor->src[0])) {
      node.op = &kGetPackedRows;
      scratch_bytes = std::max(scratch_bytes, node.op->scratch_bytes(tensor, context.threads));
    } else if (tensor->op == GGML_OP_MUL_MAT && is_packed(tensor->src[0])) {
      activation_bytes = std::max(activation_bytes, matmul_activation_bytes(tensor));
      scratch_bytes = std::max(scratch_bytes, matmul_scratch_bytes(tensor, *the_isa()->matmul, context.threads));
    } else if ((node.op = op_for(tensor)) != nullptr) {
      scratch_bytes = std::max(scratch_bytes, node.op->scratch_bytes(tensor, context.threads));
    } else {
      continue;
    }
    std::memcpy(node.params, tensor->op_params, sizeof node.params);
    context.nodes.push_back(node);
  }
  if (!context.activation_memory.grow(activation_bytes) || !context.scratch.grow(scratch_bytes)) return GGML_STATUS_ALLOC_FAILED;
  context.activations.memory = context.activation_memory.data();

  for (Node& node : context.nodes) {
    CustomParams custom{};
    custom.run = run_node;
    custom.tasks = GGML_N_TASKS_MAX;
    custom.data = &node;
    std::memcpy(node.tensor->op_params, &custom, sizeof custom);
    node.tensor->op = GGML_OP_CUSTOM;
  }
  const ggml_status status = ggml_backend_graph_compute(context.cpu, graph);
  for (const Node& node : context.nodes) {
    node.tensor->op = node.kind;
    std::memcpy(node.tensor->op_params, node.params, sizeof node.params);
  }
  return status;
}

template <typename Function>
Function cpu_function(ggml_backend_t cpu, const char* name) {
  ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(cpu));
  return reinterpret_cast<Function>(ggml_backend_reg_get_proc_address(reg, name));
}

void set_threads(ggml_backend_t backend, int threads) {
  auto* context = static_cast<Context*>(backend->context);
  context->threads = threads;
  if (auto* set = cpu_function<ggml_backend_set_n_threads_t>(context->cpu, "ggml_backend_set_n_threads"))
    set(context->cpu, threads);
}

void set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void* data) {
  auto* context = static_cast<Context*>(backend->context);
  if (auto* set = cpu_function<ggml_backend_set_abort_callback_t>(context->cpu, "ggml_backend_set_abort_callback")) {
    set(context->cpu, callback, data);
  }
}

// ---- devices. The registered one holds the packed weights' buffer type; contexts get a hidden one whose buffers are ggml-cpu's,
// so that results lie in ordinary memory and nothing is copied; with kernels off, one that takes no operation.

struct Devices {
  ggml_backend_reg reg;
  ggml_backend_device weights, compute, off;
};
Devices& devices();

ggml_guid_t guid() {
  static ggml_guid id = {0x70, 0x6f, 0x63, 0x6b, 0x65, 0x74, 0x66, 0x6c, 0x65, 0x65, 0x74, 0x6b, 0x65, 0x72, 0x6e, 0x01};
  return &id;
}

ggml_backend_t device_backend(ggml_backend_dev_t, const char*) {
  auto context = std::make_unique<Context>();
  context->cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr);
  if (context->cpu == nullptr) return nullptr;
  {
    const std::lock_guard<std::mutex> hold(observer_lock);
    context->observer = the_observer;
  }
  ggml_backend_i interface {};
  interface.get_name = backend_name;
  interface.free = backend_free;
  interface.graph_compute = backend_compute;
  return new ggml_backend{guid(), interface, t_off > 0 ? &devices().off : &devices().compute, context.release()};
}

bool compute_supports(ggml_backend_dev_t device, const ggml_tensor* op) {
  bool packed = false;
  for (const ggml_tensor* source : op->src) packed = packed || is_packed(source);
  if (packed) {
    // Asked also for a weight that is to be loaded, as the source of what it will be used for. A view of packed bytes is none.
    return t_off == 0 && device != &devices().off && is_packed(op->src[0]) && op->src[0]->view_src == nullptr &&
           !is_packed(op->src[1]) && (matmul_supports(op) || kGetPackedRows.supports(op));
  }
  if (device == &devices().off) return false;
  if (op->op == GGML_OP_NONE) return true;
  static ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  return ggml_backend_dev_supports_op(cpu, op);
}

const char* device_name(ggml_backend_dev_t) {
  return "Pocketfleet";
}
const char* device_description(ggml_backend_dev_t) {
  return the_isa() == nullptr ? "none" : the_isa()->name;
}
void device_memory(ggml_backend_dev_t, size_t* free, size_t* total) {
  *free = *total = 0;
}
enum ggml_backend_dev_type device_type(ggml_backend_dev_t) {
  return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}
void device_props(ggml_backend_dev_t device, ggml_backend_dev_props* props) {
  *props = {};
  props->name = device_name(device);
  props->description = device_description(device);
  props->type = device_type(device);
}
ggml_backend_buffer_type_t device_buffers(ggml_backend_dev_t device) {
  return device == &devices().weights ? packed_buffer_type() : ggml_backend_cpu_buffer_type();
}
bool device_supports_buffers(ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
  return type == packed_buffer_type() || ggml_backend_buft_is_host(type);
}

const char* reg_name(ggml_backend_reg_t) {
  return "Pocketfleet";
}
size_t reg_devices(ggml_backend_reg_t) {
  return 1;
}
ggml_backend_dev_t reg_device(ggml_backend_reg_t, size_t) {
  return &devices().weights;
}
void* reg_function(ggml_backend_reg_t, const char* name) {
  if (std::strcmp(name, "ggml_backend_set_n_threads") == 0) return reinterpret_cast<void*>(set_threads);
  if (std::strcmp(name, "ggml_backend_set_abort_callback") == 0) return reinterpret_cast<void*>(set_abort_callback);
  return nullptr;
}

Devices& devices() {
  static Devices all = [] {
    Devices made{};
    made.reg.api_version = GGML_BACKEND_API_VERSION;
    made.reg.iface = {reg_name, reg_devices, reg_device, reg_function};
    ggml_backend_device_i interface {};
    interface.get_name = device_name;
    interface.get_description = device_description;
    interface.get_memory = device_memory;
    interface.get_type = device_type;
    interface.get_props = device_props;
    interface.init_backend = device_backend;
    interface.get_buffer_type = device_buffers;
    interface.supports_op = compute_supports;
    interface.supports_buft = device_supports_buffers;
    made.weights.iface = made.compute.iface = made.off.iface = interface;
    return made;
  }();
  static std::once_flag linked;
  std::call_once(linked, [] {
    all.weights.reg = all.compute.reg = all.off.reg = &all.reg;
    packed_buffer_type()->device = &all.weights;
  });
  return all;
}

}  // namespace

ggml_backend_reg_t registry() {
  static const bool fits = the_isa() != nullptr && matches_ggml();
  return fits ? &devices().reg : nullptr;
}

bool register_kernels() {
  static const bool registered = [] {
    if (registry() == nullptr) return false;
    ggml_backend_register(registry());
    return true;
  }();
  return registered;
}

std::string instruction_set() {
  return the_isa() == nullptr ? "none" : the_isa()->name;
}

KernelsOff::KernelsOff() {
  ++t_off;
}
KernelsOff::~KernelsOff() {
  --t_off;
}

double packed_bytes_per_file_byte(std::string_view type_name) {
  if (the_isa() == nullptr) return 0;
  for (int number = 0; number < GGML_TYPE_COUNT; ++number) {
    const auto type = static_cast<ggml_type>(number);
    const char* name = ggml_type_name(type);
    if (name == nullptr || type_name.size() != std::strlen(name) || strncasecmp(name, type_name.data(), type_name.size()) != 0)
      continue;
    const Layout layout = layout_for(type, 256, kUnitRows);
    if (layout == Layout::kNone) return 0;
    return static_cast<double>(packed_bytes(layout, 256, kUnitRows)) / static_cast<double>(ggml_row_size(type, 256) * kUnitRows);
  }
  return 0;
}

void observe_kernels(std::function<void(const Computed&)> observer) {
  const std::lock_guard<std::mutex> hold(observer_lock);
  the_observer = std::move(observer);
}

}  // namespace pocketfleet::kernels
