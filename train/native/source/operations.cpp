// TensorFlow's operations around the kernels. Each checks its inputs before it touches their values; what is wrong
// becomes an error of the operation. Nothing here throws.
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <new>
#include <type_traits>

#include "block.h"
#include "convolution.h"
#include "layers.h"
#include "tensorflow.h"
#include "threads.h"
#include "transition.h"

namespace native {
namespace {

constexpr int MAX_RANK = 4;

template <typename Value>
constexpr int TYPE = std::is_same_v<Value, float> ? TF_FLOAT : std::is_same_v<Value, Bfloat> ? TF_BFLOAT16 : TF_INT32;

// The shape of a tensor of any rank; -1: not known yet.
struct Shape {
  int rank = -1;
  int64_t sizes[MAX_RANK] = {};

  int64_t count() const {
    int64_t elements = 1;
    for (int axis = 0; axis < rank; ++axis) elements *= sizes[axis];
    return elements;
  }
};

// One run of an operation. After the first error, all further requests return null.
class Call {
 public:
  explicit Call(TF_OpKernelContext *context) : context_(context), status_(TF_NewStatus()) {}
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;

  ~Call() {
    if (failed()) TF_OpKernelContext_Failure(context_, status_);
    if (scratch_) TF_DeleteTensor(scratch_);
    TF_DeleteStatus(status_);
  }

  // Inputs and outputs may be empty from now on.
  void permit_empty() { least_ = 0; }

  bool failed() const { return TF_GetCode(status_) != TF_OK; }

  __attribute__((format(printf, 2, 3))) void fail(const char *format, ...) {
    char message[240];
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    TF_SetStatus(status_, TF_INVALID_ARGUMENT, message);
  }

  int count_inputs() const { return TF_NumInputs(context_); }

  // Returns the values of an input. Its sizes must be those pointed to; a size of 0 is not known yet and is filled in.
  template <typename Value = float>
  const Value *read(int index, std::initializer_list<int64_t *> sizes) {
    return read_sizes<Value>(index, sizes.begin(), static_cast<int>(sizes.size()));
  }

  // Returns the values of an input of any rank. If `shape` is known already, the input must have it.
  const float *read(int index, Shape &shape) {
    int64_t *sizes[MAX_RANK];
    for (int axis = 0; axis < MAX_RANK; ++axis) sizes[axis] = &shape.sizes[axis];
    return read_sizes<float>(index, sizes, shape.rank, &shape.rank);
  }

  // Makes an output, in the memory of an input of the same shape if nothing else uses that.
  template <typename Value = float>
  Value *write(int index, const int64_t *sizes, int rank, int reused = -1) {
    int64_t elements = 1;
    for (int axis = 0; axis < rank && !failed(); ++axis)
      if (sizes[axis] < least_ || __builtin_mul_overflow(elements, sizes[axis], &elements) || elements > INT64_MAX / 8)
        fail("output %d would have a size of %lld, or too many elements", index, static_cast<long long>(sizes[axis]));
    if (failed()) return nullptr;
    int forwarded = -1;
    return take<Value>(reused < 0 ? TF_AllocateOutput(context_, index, TYPE<Value>, sizes, rank,
                                                      static_cast<size_t>(elements) * sizeof(Value), status_)
                                  : TF_ForwardInputOrAllocateOutput(context_, &reused, 1, index, sizes, rank, &forwarded,
                                                                    status_),
                       true);
  }
  template <typename Value = float>
  Value *write(int index, std::initializer_list<int64_t> sizes, int reused = -1) {
    return write<Value>(index, sizes.begin(), static_cast<int>(sizes.size()), reused);
  }

  // Returns working memory until the end of the call, aligned to 64 bytes. A call may ask once.
  float *borrow(size_t floats) {
    struct {
      size_t size = sizeof(size_t) + 1;
      unsigned char on_host = 1;
    } attributes;
    const auto elements = static_cast<int64_t>(floats ? floats : 1);
    if (failed()) return nullptr;
    scratch_ = TF_AllocateTemp(context_, TF_FLOAT, &elements, 1, &attributes, status_);
    return take<float>(scratch_, false);
  }

  // Makes an array; TensorFlow is told if there is no memory.
  template <typename Value>
  std::unique_ptr<Value[]> make(int64_t count) {
    std::unique_ptr<Value[]> made(new (std::nothrow) Value[static_cast<size_t>(count)]);
    if (!made) TF_SetStatus(status_, TF_RESOURCE_EXHAUSTED, "out of memory");
    return made;
  }

 private:
  template <typename Value>
  Value *take(TF_Tensor *tensor, bool once) {
    if (failed() || !tensor) {
      if (!failed()) TF_SetStatus(status_, TF_RESOURCE_EXHAUSTED, "out of memory");
      return nullptr;
    }
    auto *values = static_cast<Value *>(TF_TensorData(tensor));
    if (once) TF_DeleteTensor(tensor);  // the context keeps the values
    return values;
  }

  template <typename Value>
  const Value *read_sizes(int index, int64_t *const *sizes, int rank, int *filled_rank = nullptr) {
    TF_Tensor *tensor = nullptr;
    if (failed()) return nullptr;
    if (index >= count_inputs()) return fail("there is no input %d", index), nullptr;
    TF_GetInput(context_, index, &tensor, status_);
    if (failed()) return nullptr;
    if (rank < 0 && TF_NumDims(tensor) <= MAX_RANK) rank = *filled_rank = TF_NumDims(tensor);
    const auto *values = static_cast<const Value *>(TF_TensorData(tensor));
    check(index, tensor, sizes, rank, TYPE<Value>);
    TF_DeleteTensor(tensor);  // the context keeps the values
    return failed() ? nullptr : values;
  }

  void check(int index, const TF_Tensor *tensor, int64_t *const *sizes, int rank, int type) {
    if (TF_TensorType(tensor) != type) return fail("input %d has type %d, not %d", index, TF_TensorType(tensor), type);
    if (TF_NumDims(tensor) != rank) return fail("input %d has rank %d, not %d", index, TF_NumDims(tensor), rank);
    for (int axis = 0; axis < rank; ++axis) {
      const int64_t found = TF_Dim(tensor, axis);
      if (found < least_) return fail("input %d is empty: axis %d has size %lld", index, axis, static_cast<long long>(found));
      if (!*sizes[axis]) *sizes[axis] = found;
      if (found != *sizes[axis])
        return fail("input %d has size %lld on axis %d, not %lld", index, static_cast<long long>(found), axis,
                    static_cast<long long>(*sizes[axis]));
    }
  }

  TF_OpKernelContext *context_;
  TSL_Status *status_;
  TF_Tensor *scratch_ = nullptr;
  int64_t least_ = 1;  // size of an axis
};

constexpr int WEIGHTS = 6;  // tensors of a layer of a block

// A block without layers has results of size 0, and 0 also says that a size is not known yet.
void check_layers(Call &call, int64_t found, int64_t expected) {
  if (!call.failed() && found != expected)
    call.fail("there are results of %lld layers, and weights of %lld", static_cast<long long>(found),
              static_cast<long long>(expected));
}

// Reads the weights of all layers from an input on, and fills in what they say about the shape.
std::unique_ptr<Layer[]> read_layers(Call &call, int start, BlockShape &shape) {
  const int count = call.count_inputs() - start;
  if (count % WEIGHTS) call.fail("a block with %d weights: a layer has %d", count, WEIGHTS);
  shape.layers = count / WEIGHTS;
  if (!shape.layers) call.permit_empty();  // the results between convolutions
  auto layers = call.make<Layer>(shape.layers);
  int64_t one = 1, three = 3;
  for (int64_t i = 0; i < shape.layers && !call.failed(); ++i) {
    const int at = start + static_cast<int>(i) * WEIGHTS;
    int64_t later = shape.channels(i), *inputs = i ? &later : &shape.first;
    layers[i].kernel1 = call.read(at + 2, {&one, &one, inputs, &shape.inner});
    layers[i].kernel2 = call.read(at + 5, {&three, &three, &shape.inner, &shape.growth});
    layers[i].gamma1 = call.read(at, {inputs});
    layers[i].beta1 = call.read(at + 1, {inputs});
    layers[i].gamma2 = call.read(at + 3, {&shape.inner});
    layers[i].beta2 = call.read(at + 4, {&shape.inner});
  }
  if (!call.failed() && (shape.inner > MAX_INNER || shape.growth > MAX_GROWTH))
    call.fail("a layer is too wide: %lld, then %lld channels", static_cast<long long>(shape.inner),
              static_cast<long long>(shape.growth));
  return layers;
}

// Reads a rate, and the numbers that decide what is dropped.
Dropout read_dropout(Call &call, int start) {
  int64_t count = 0;
  const float *rate = call.read(start, {});
  const auto *seed = call.read<int32_t>(start + 1, {&count});
  if (call.failed()) return {};
  if (!(*rate >= 0 && *rate < 1)) return call.fail("the share to drop must lie in [0, 1), not %g", static_cast<double>(*rate)), Dropout();
  Dropout dropout(*rate);
  for (int64_t i = 0; i < count; ++i) dropout = dropout.at(seed[i]);
  return dropout;
}

template <typename Value>
void block(Call &call) {
  BlockShape s{};
  const Value *x = call.read<Value>(0, {&s.images, &s.first, &s.height, &s.width});
  s.dropout = read_dropout(call, 1);
  const auto layers = read_layers(call, 3, s);
  if (call.failed()) return;
  const int64_t channels = s.channels(s.layers);
  Value *maps = call.write<Value>(0, {s.images, channels, s.height, s.width});
  Value *between = call.write<Value>(1, {s.layers, call.failed() ? 0 : count_between(s)});
  const StatisticsOut features{call.write(2, {channels}), call.write(3, {channels}), call.write(4, {channels})};
  const StatisticsOut inner{call.write(5, {s.layers, s.inner}), call.write(6, {s.layers, s.inner}),
                            call.write(7, {s.layers, s.inner})};
  float *scratch = call.borrow(call.failed() ? 0 : count_scratch<Value>(s));
  if (!call.failed()) run_block(s, x, layers.get(), maps, between, features, inner, scratch);
}

template <typename Value>
void block_gradient(Call &call) {
  BlockShape s{};
  int64_t channels = 0;
  const Value *upstream = call.read<Value>(0, {&s.images, &channels, &s.height, &s.width});
  const Value *maps = call.read<Value>(1, {&s.images, &channels, &s.height, &s.width});
  s.dropout = read_dropout(call, 7);
  const auto layers = read_layers(call, 9, s);
  const int64_t count = s.layers;
  int64_t values = call.failed() ? 0 : count_between(s);
  const Value *between = call.read<Value>(2, {&s.layers, &values});
  const float *scale = call.read(3, {&channels});
  const Statistics inner{call.read(4, {&s.layers, &s.inner}), call.read(5, {&s.layers, &s.inner}),
                         call.read(6, {&s.layers, &s.inner})};
  check_layers(call, s.layers, count);
  if (!count) s.first = channels;
  if (call.failed()) return;
  if (s.channels(s.layers) != channels) return call.fail("the layers do not make the block's maps");
  // Without layers, x has the shape of the maps, and its gradient is computed where theirs lies.
  Value *dx = call.write<Value>(0, {s.images, s.first, s.height, s.width}, s.layers ? -1 : 0);
  const auto gradients = call.make<LayerGradient>(s.layers);
  for (int64_t i = 0; i < s.layers && !call.failed(); ++i) {
    const int at = 1 + static_cast<int>(i) * WEIGHTS;
    gradients[i] = {call.write(at, {s.channels(i)}),     call.write(at + 1, {s.channels(i)}),
                    call.write(at + 2, {1, 1, s.channels(i), s.inner}),
                    call.write(at + 3, {s.inner}),       call.write(at + 4, {s.inner}),
                    call.write(at + 5, {3, 3, s.inner, s.growth})};
  }
  const int worked_at = 1 + static_cast<int>(s.layers) * WEIGHTS;
  Value *worked = call.write<Value>(worked_at, {s.layers ? s.images : 0, channels, s.height, s.width}, s.layers ? 0 : -1);
  if (!s.layers) worked = dx;
  float *scratch = call.borrow(call.failed() ? 0 : count_gradient_scratch<Value>(s));
  if (!call.failed())
    differentiate_block(s, upstream, maps, between, scale, inner, layers.get(), dx, gradients.get(), worked, scratch);
}

template <typename Value>
void block_inference(Call &call) {
  BlockShape s{};
  const Value *x = call.read<Value>(0, {&s.images, &s.first, &s.height, &s.width});
  const auto layers = read_layers(call, 5, s);
  if (call.failed()) return;
  const int64_t count = s.layers;
  int64_t channels = s.channels(count);
  const float *mean = call.read(1, {&channels}), *variance = call.read(2, {&channels});
  const float *inner_mean = call.read(3, {&s.layers, &s.inner}), *inner_variance = call.read(4, {&s.layers, &s.inner});
  check_layers(call, s.layers, count);
  Value *maps = call.write<Value>(0, {s.images, channels, s.height, s.width});
  float *scratch = call.borrow(call.failed() ? 0 : count_inference_scratch<Value>(s));
  if (!call.failed()) infer_block(s, x, layers.get(), mean, variance, inner_mean, inner_variance, maps, scratch);
}

const float *read_kernel(Call &call, int index, ConvolutionShape &s) {
  const float *kernel = call.read(index, {&s.size, &s.size, &s.inputs, &s.outputs});
  if (!call.failed() && s.size > MAX_SIZE)
    call.fail("the kernel's size must be at most %d, not %lld", static_cast<int>(MAX_SIZE),
              static_cast<long long>(s.size));
  return kernel;
}

template <typename Value>
void convolution(Call &call) {
  ConvolutionShape s{};
  const Value *x = call.read<Value>(0, {&s.images, &s.inputs, &s.height, &s.width});
  const float *kernel = read_kernel(call, 1, s);
  Value *y = call.write<Value>(0, {s.images, s.outputs, s.height, s.width});
  float *scratch = call.borrow(call.failed() ? 0 : count_scratch<Value>(s));
  if (!call.failed()) convolve(s, x, kernel, y, scratch);
}

template <typename Value, bool with_dx>
void convolution_gradient(Call &call) {
  ConvolutionShape s{};
  const Value *dy = call.read<Value>(0, {&s.images, &s.outputs, &s.height, &s.width});
  const Value *x = call.read<Value>(1, {&s.images, &s.inputs, &s.height, &s.width});
  const float *kernel = read_kernel(call, 2, s);
  float *d_kernel = call.write(0, {s.size, s.size, s.inputs, s.outputs});
  Value *dx = with_dx ? call.write<Value>(1, {s.images, s.inputs, s.height, s.width}) : nullptr;
  float *scratch = call.borrow(call.failed() ? 0 : count_gradient_scratch<Value>(s));
  if (!call.failed()) differentiate_convolution(s, dy, x, kernel, dx, d_kernel, scratch);
}

template <typename Value, Pooling pooling>
void rectifier(Call &call) {
  MapsShape s{};
  const Value *x = call.read<Value>(0, {&s.images, &s.channels, &s.height, &s.width});
  const float *gamma = call.read(1, {&s.channels}), *beta = call.read(2, {&s.channels});
  Value *y = call.write<Value>(0, {s.images, s.channels, pool(pooling, s.height), pool(pooling, s.width)});
  if (!call.failed()) scale_rectify(s, x, gamma, beta, pooling, y);
}

template <typename Value, Pooling pooling>
void rectifier_gradient(Call &call) {
  MapsShape s{};
  const Value *x = call.read<Value>(1, {&s.images, &s.channels, &s.height, &s.width});
  const float *gamma = call.read(2, {&s.channels}), *beta = call.read(3, {&s.channels});
  int64_t height = pool(pooling, s.height), width = pool(pooling, s.width);
  const Value *dy = call.read<Value>(0, {&s.images, &s.channels, &height, &width});
  Value *dx = call.write<Value>(0, {s.images, s.channels, s.height, s.width}, pooling == Pooling::NONE ? 0 : -1);
  float *d_gamma = call.write(1, {s.channels}), *d_beta = call.write(2, {s.channels});
  if (!call.failed()) differentiate_scale_rectify(s, dy, x, gamma, beta, pooling, dx, d_gamma, d_beta);
}

template <typename Value>
void transition(Call &call) {
  MapsShape s{};
  const Value *x = call.read<Value>(0, {&s.images, &s.channels, &s.height, &s.width});
  const float *gamma = call.read(1, {&s.channels}), *beta = call.read(2, {&s.channels});
  int64_t one = 1, outputs = 0;
  const float *kernel = call.read(3, {&one, &one, &s.channels, &outputs});
  Value *y = call.write<Value>(0, {s.images, outputs, s.height / 2, s.width / 2});
  float *scratch = call.borrow(call.failed() ? 0 : count_transition_scratch<Value>(s, outputs));
  if (!call.failed()) run_transition(s, x, gamma, beta, kernel, outputs, y, scratch);
}

template <typename Value>
void transition_gradient(Call &call) {
  MapsShape s{};
  const Value *x = call.read<Value>(1, {&s.images, &s.channels, &s.height, &s.width});
  const float *gamma = call.read(2, {&s.channels}), *beta = call.read(3, {&s.channels});
  int64_t one = 1, outputs = 0, height = s.height / 2, width = s.width / 2;
  const float *kernel = call.read(4, {&one, &one, &s.channels, &outputs});
  if (!call.failed() && (height < 1 || width < 1)) return call.fail("maps of one row or column have no squares");
  const Value *dy = call.read<Value>(0, {&s.images, &outputs, &height, &width});
  Value *dx = call.write<Value>(0, {s.images, s.channels, s.height, s.width});
  float *d_gamma = call.write(1, {s.channels}), *d_beta = call.write(2, {s.channels});
  float *d_kernel = call.write(3, {1, 1, s.channels, outputs});
  float *scratch = call.borrow(call.failed() ? 0 : count_transition_gradient_scratch<Value>(s, outputs));
  if (!call.failed())
    differentiate_transition(s, dy, x, gamma, beta, kernel, outputs, dx, d_gamma, d_beta, d_kernel, scratch);
}

template <typename Value>
void dropout(Call &call) {
  MapsShape s{};
  const Value *x = call.read<Value>(0, {&s.images, &s.channels, &s.height, &s.width});
  const Dropout dropped = read_dropout(call, 1);
  Value *y = call.write<Value>(0, {s.images, s.channels, s.height, s.width});
  if (!call.failed()) drop(s, dropped, x, y);
}

void average(Call &call) {
  MapsShape s{};
  const float *x = call.read(0, {&s.images, &s.channels, &s.height, &s.width});
  float *y = call.write(0, {s.images, s.channels});
  if (!call.failed()) average_pixels(s, x, y);
}

// The gradient of an average needs height and width of what was averaged, and not its values.
void average_gradient(Call &call) {
  MapsShape s{};
  int64_t two = 2;
  if (const auto *size = call.read<int32_t>(1, {&two})) s.height = size[0], s.width = size[1];
  const float *dy = call.read(0, {&s.images, &s.channels});
  float *dx = call.write(0, {s.images, s.channels, s.height, s.width});
  if (!call.failed()) differentiate_average_pixels(s, dy, dx);
}

void dense(Call &call) {
  DenseShape s{};
  const float *x = call.read(0, {&s.images, &s.inputs}), *kernel = call.read(1, {&s.inputs, &s.outputs});
  const float *bias = call.read(2, {&s.outputs});
  float *y = call.write(0, {s.images, s.outputs});
  if (!call.failed()) run_dense(s, x, kernel, bias, y);
}

void dense_gradient(Call &call) {
  DenseShape s{};
  const float *dy = call.read(0, {&s.images, &s.outputs}), *x = call.read(1, {&s.images, &s.inputs});
  const float *kernel = call.read(2, {&s.inputs, &s.outputs});
  float *dx = call.write(0, {s.images, s.inputs}), *d_kernel = call.write(1, {s.inputs, s.outputs});
  float *d_bias = call.write(2, {s.outputs});
  if (!call.failed()) differentiate_dense(s, dy, x, kernel, dx, d_kernel, d_bias);
}

void loss(Call &call) {
  int64_t images = 0, classes = 0;
  const float *logits = call.read(0, {&images, &classes}), *targets = call.read(1, {&images, &classes});
  for (int64_t i = 0; i < images && !call.failed(); ++i) {
    float sum = 0.0f;
    for (int64_t j = 0; j < classes && sum >= 0; ++j) sum += targets[i * classes + j] >= 0 ? targets[i * classes + j] : NAN;
    if (!(sum > 0)) call.fail("image %lld has no target, or a negative one", static_cast<long long>(i));
  }
  float *mean = call.write(0, {}), *gradient = call.write(1, {images, classes});
  if (!call.failed()) cross_entropy(images, classes, logits, targets, mean, gradient);
}

void momentum(Call &call) {
  Shape shape;
  const float *weight = call.read(0, shape), *velocity = call.read(1, shape), *gradient = call.read(2, shape);
  const float *rate = call.read(3, {}), *kept = call.read(4, {}), *decay = call.read(5, {});
  float *new_weight = call.write(0, shape.sizes, shape.rank);
  float *new_velocity = call.write(1, shape.sizes, shape.rank, 2);
  if (!call.failed())
    update_by_momentum(shape.count(), weight, velocity, gradient, *rate, *kept, *decay, new_weight, new_velocity);
}

void power(Call &call) {
  const float *base = call.read(0, {});
  const auto *exponent = call.read<int32_t>(1, {});
  float *y = call.write(0, {});
  if (!call.failed()) *y = raise(*base, *exponent);
}

using Words = std::initializer_list<const char *>;

// Makes a kernel of an operation known to TensorFlow, for a type of maps, or for any if that is 0.
template <void (*run)(Call &)>
void define_kernel(const char *name, int type, TSL_Status *status) {
  TF_KernelBuilder *kernel = TF_NewKernelBuilder(
      name, "CPU", [](TF_OpKernelConstruction *) -> void * { return nullptr; },
      [](void *, TF_OpKernelContext *context) {
        Call call(context);
        run(call);
      },
      [](void *) {});
  if (type) TF_KernelBuilder_TypeConstraint(kernel, "T", type, status);
  if (TF_GetCode(status) == TF_OK) TF_RegisterKernelBuilder(name, kernel, status);
}

// Makes an operation known to TensorFlow; a second function is for maps in bfloat16. Python sets the shapes of results.
template <void (*run)(Call &), void (*run_bfloat)(Call &) = nullptr>
void define(const char *name, Words inputs, Words outputs, Words attributes = {}) {
  TSL_Status *status = TF_NewStatus();
  TF_OpDefinitionBuilder *definition = TF_NewOpDefinitionBuilder(name);
  if (run_bfloat) TF_OpDefinitionBuilderAddAttr(definition, "T: {float, bfloat16}");
  for (const char *text : attributes) TF_OpDefinitionBuilderAddAttr(definition, text);
  for (const char *text : inputs) TF_OpDefinitionBuilderAddInput(definition, text);
  for (const char *text : outputs) TF_OpDefinitionBuilderAddOutput(definition, text);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(definition, TF_ShapeInferenceContextSetUnknownShape);
  TF_RegisterOpDefinition(definition, status);
  if (TF_GetCode(status) == TF_OK) define_kernel<run>(name, run_bfloat ? TF_FLOAT : 0, status);
  if constexpr (run_bfloat != nullptr)
    if (TF_GetCode(status) == TF_OK) define_kernel<run_bfloat>(name, TF_BFLOAT16, status);
  if (TF_GetCode(status) != TF_OK) std::fprintf(stderr, "native kernels: %s: %s\n", name, TF_Message(status));
  TF_DeleteStatus(status);
}

template <Pooling pooling>
void define_rectifiers(const char *forward, const char *backward) {
  define<rectifier<float, pooling>, rectifier<Bfloat, pooling>>(forward, {"x: T", "gamma: float", "beta: float"},
                                                                {"y: T"});
  define<rectifier_gradient<float, pooling>, rectifier_gradient<Bfloat, pooling>>(
      backward, {"dy: T", "x: T", "gamma: float", "beta: float"}, {"dx: T", "d_gamma: float", "d_beta: float"});
}

__attribute__((constructor)) void define_all() {
  if (!TF_NewOpDefinitionBuilder) return;  // TensorFlow is not loaded
  const Words weights_attribute = {"count: int >= 0"};
  const char *weights = "weights: count * float";
  define<block<float>, block<Bfloat>>("ToolkitBlock", {"x: T", "rate: float", "seed: int32", weights},
                                      {"maps: T", "between: T", "mean: float", "variance: float", "scale: float",
                                       "inner_mean: float", "inner_variance: float", "inner_scale: float"},
                                      weights_attribute);
  define<block_gradient<float>, block_gradient<Bfloat>>(
      "ToolkitBlockGradient",
      {"upstream: T", "maps: T", "between: T", "scale: float", "inner_mean: float", "inner_variance: float",
       "inner_scale: float", "rate: float", "seed: int32", weights},
      {"dx: T", "gradients: count * float", "worked: T"}, weights_attribute);
  define<block_inference<float>, block_inference<Bfloat>>(
      "ToolkitBlockInference",
      {"x: T", "mean: float", "variance: float", "inner_mean: float", "inner_variance: float", weights}, {"maps: T"},
      weights_attribute);
  define<convolution<float>, convolution<Bfloat>>("ToolkitConvolution", {"x: T", "kernel: float"}, {"y: T"});
  const Words convolution_gradient_inputs = {"dy: T", "x: T", "kernel: float"};
  define<convolution_gradient<float, true>, convolution_gradient<Bfloat, true>>(
      "ToolkitConvolutionGradient", convolution_gradient_inputs, {"d_kernel: float", "dx: T"});
  define<convolution_gradient<float, false>, convolution_gradient<Bfloat, false>>(
      "ToolkitConvolutionKernelGradient", convolution_gradient_inputs, {"d_kernel: float"});
  define_rectifiers<Pooling::NONE>("ToolkitScaleRectify", "ToolkitScaleRectifyGradient");
  define_rectifiers<Pooling::MAXIMUM>("ToolkitScaleRectifyMaximum", "ToolkitScaleRectifyMaximumGradient");
  define<transition<float>, transition<Bfloat>>("ToolkitTransition",
                                                {"x: T", "gamma: float", "beta: float", "kernel: float"}, {"y: T"});
  define<transition_gradient<float>, transition_gradient<Bfloat>>(
      "ToolkitTransitionGradient", {"dy: T", "x: T", "gamma: float", "beta: float", "kernel: float"},
      {"dx: T", "d_gamma: float", "d_beta: float", "d_kernel: float"});
  define<dropout<float>, dropout<Bfloat>>("ToolkitDropout", {"x: T", "rate: float", "seed: int32"}, {"y: T"});
  define<average>("ToolkitAveragePixels", {"x: float"}, {"y: float"});
  define<average_gradient>("ToolkitAveragePixelsGradient", {"dy: float", "size: int32"}, {"dx: float"});
  define<dense>("ToolkitDense", {"x: float", "kernel: float", "bias: float"}, {"y: float"});
  define<dense_gradient>("ToolkitDenseGradient", {"dy: float", "x: float", "kernel: float"},
                         {"dx: float", "d_kernel: float", "d_bias: float"});
  define<momentum>("ToolkitMomentum",
                   {"weight: float", "velocity: float", "gradient: float", "rate: float", "momentum: float",
                    "decay: float"},
                   {"new_weight: float", "new_velocity: float"});
  define<power>("ToolkitPower", {"base: float", "exponent: int32"}, {"y: float"});
  define<loss>("ToolkitCrossEntropy", {"logits: float", "targets: float"}, {"loss: float", "gradient: float"});
}

}  // namespace
}  // namespace native
