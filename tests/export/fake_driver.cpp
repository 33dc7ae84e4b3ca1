// A CUDA driver for tests: does nothing, and says on standard output what it was asked for, a JSON object a line.
//
// Environment: PROCESSORS, CAPABILITY (90), DRIVER_VERSION (13000), NO_CONTEXT, FAIL (the name of a call that fails),
// PARAMETER_BYTES (the sizes of the kernel's parameters, with commas).
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace {

int number(const char *name, int otherwise) {
  const char *text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

CUresult result(const char *call) {
  const char *fails = std::getenv("FAIL");
  return fails != nullptr && std::strcmp(fails, call) == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// What has to be given back: memory, streams, modules, contexts that were pushed.
struct Held {
  std::multiset<void *> things;
  int encoded = 0;
  ~Held() { std::printf("{\"call\": \"end\", \"held\": %zu}\n", things.size()); }
} held;

CUcontext const kContext = reinterpret_cast<CUcontext>(0x1000);
std::vector<CUcontext> contexts = {kContext};

CUresult take(void *thing) {
  held.things.insert(thing);
  return CUDA_SUCCESS;
}

CUresult give_back(void *thing) {
  const auto found = held.things.find(thing);
  if (found == held.things.end()) return CUDA_ERROR_INVALID_HANDLE;
  held.things.erase(found);
  return CUDA_SUCCESS;
}

template <typename T>
void list(const char *name, const T *values, unsigned count) {
  std::printf(", \"%s\": [", name);
  for (unsigned i = 0; i < count; ++i) std::printf("%s%llu", i ? ", " : "", static_cast<unsigned long long>(values[i]));
  std::printf("]");
}

}  // namespace

CUresult cuGetErrorName(CUresult, const char **text) { return *text = "CUDA_ERROR_INVALID_VALUE", CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult, const char **text) { return *text = "invalid argument", CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { return *version = number("DRIVER_VERSION", 13000), CUDA_SUCCESS; }

// What a program does by itself.
CUresult cuInit(unsigned) { return result("cuInit"); }
CUresult cuDeviceGet(CUdevice *device, int) { return *device = 0, result("cuDeviceGet"); }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice) { return *context = kContext, take(*context); }
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return give_back(kContext); }
CUresult cuCtxSynchronize() { return result("cuCtxSynchronize"); }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void *>(to), from, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
  return std::memcpy(to, reinterpret_cast<void *>(from), bytes), CUDA_SUCCESS;
}

// Every thread begins without a context if NO_CONTEXT is set.
CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = std::getenv("NO_CONTEXT") != nullptr || contexts.empty() ? nullptr : contexts.back();
  return result("cuCtxGetCurrent");
}
CUresult cuCtxPushCurrent(CUcontext context) {
  if (result("cuCtxPushCurrent")) return result("cuCtxPushCurrent");
  contexts.push_back(context);
  return take(context);
}
CUresult cuCtxPopCurrent(CUcontext *context) {
  *context = contexts.back();
  contexts.pop_back();
  return give_back(*context);
}
CUresult cuCtxSetCurrent(CUcontext context) {
  contexts.assign(1, context);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) { return *device = 0, result("cuCtxGetDevice"); }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice) {
  const int capability = number("CAPABILITY", 90);
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *value = capability / 10;
  else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) *value = capability % 10;
  else if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *value = number("PROCESSORS", 132);
  else return CUDA_ERROR_INVALID_VALUE;
  return result("cuDeviceGetAttribute");
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  if (result("cuModuleLoadData")) return result("cuModuleLoadData");
  *module = reinterpret_cast<CUmodule>(0x2000);
  if (std::memcmp(image, "\x7f" "ELF", 4) != 0) return CUDA_ERROR_INVALID_IMAGE;
  return take(*module);
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule, const char *name) {
  *function = reinterpret_cast<CUfunction>(0x3000);
  std::printf("{\"call\": \"function\", \"name\": \"%s\"}\n", name);
  return result("cuModuleGetFunction");
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute attribute, int value) {
  std::printf("{\"call\": \"attribute\", \"attribute\": %d, \"value\": %d}\n", static_cast<int>(attribute), value);
  return result("cuFuncSetAttribute");
}
CUresult cuModuleUnload(CUmodule module) { return result("cuModuleUnload") ? result("cuModuleUnload") : give_back(module); }

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes) {
  if (result("cuMemAlloc")) return result("cuMemAlloc");
  void *memory = std::malloc(bytes);
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  std::printf("{\"call\": \"memory\", \"address\": %llu, \"bytes\": %zu}\n", static_cast<unsigned long long>(*pointer),
              bytes);
  return take(memory);
}
CUresult cuMemFree(CUdeviceptr pointer) {
  void *memory = reinterpret_cast<void *>(pointer);
  const CUresult given = give_back(memory);
  if (given == CUDA_SUCCESS) std::free(memory);
  return given;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream) {
  if (result("cuMemcpyHtoDAsync")) return result("cuMemcpyHtoDAsync");
  std::memcpy(reinterpret_cast<void *>(to), from, bytes);
  std::printf("{\"call\": \"table\", \"address\": %llu", static_cast<unsigned long long>(to));
  list("elements", static_cast<const unsigned *>(from), static_cast<unsigned>(bytes / 4));
  std::printf("}\n");
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  if (result("cuMemsetD8Async")) return result("cuMemsetD8Async");
  std::memset(reinterpret_cast<void *>(to), value, bytes);
  std::printf("{\"call\": \"clear\", \"address\": %llu, \"value\": %d, \"bytes\": %zu, \"stream\": %llu}\n",
              static_cast<unsigned long long>(to), value, bytes, reinterpret_cast<unsigned long long>(stream));
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  if (result("cuStreamCreate")) return result("cuStreamCreate");
  *stream = reinterpret_cast<CUstream>(0x4000);
  return flags == CU_STREAM_NON_BLOCKING ? take(*stream) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuStreamSynchronize(CUstream) { return result("cuStreamSynchronize"); }
CUresult cuStreamDestroy(CUstream stream) { return give_back(stream); }

// The map's first word is its number, counted from one; all bits of the second are set.
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *dimensions, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (result("cuTensorMapEncodeTiled")) return result("cuTensorMapEncodeTiled");
  std::memset(map, 0, sizeof *map);
  map->opaque[0] = static_cast<cuuint64_t>(++held.encoded);
  map->opaque[1] = ~cuuint64_t{0};
  std::printf("{\"call\": \"map\", \"number\": %d, \"type\": %d, \"address\": %llu", held.encoded, static_cast<int>(type),
              static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(address)));
  list("dimensions", dimensions, rank);
  list("strides", strides, rank - 1);
  list("box", box, rank);
  list("steps", steps, rank);
  std::printf(", \"interleave\": %d, \"swizzle\": %d, \"promotion\": %d, \"fill\": %d}\n", static_cast<int>(interleave),
              static_cast<int>(swizzle), static_cast<int>(promotion), static_cast<int>(fill));
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
  if (result("cuLaunchKernelEx")) return result("cuLaunchKernelEx");
  std::printf("{\"call\": \"launch\", \"function\": %llu, \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared\": %u, "
              "\"stream\": %llu, \"extra\": %d, \"context\": %llu, \"attributes\": [",
              static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(function)), config->gridDimX, config->gridDimY,
              config->gridDimZ, config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes,
              static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(config->hStream)), extra != nullptr,
              static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(contexts.back())));
  for (unsigned i = 0; i < config->numAttrs; ++i)
    std::printf("%s[%d, %d]", i ? ", " : "", static_cast<int>(config->attrs[i].id),
                config->attrs[i].value.programmaticStreamSerializationAllowed);
  std::printf("], \"parameters\": [");
  const std::string sizes = std::getenv("PARAMETER_BYTES") != nullptr ? std::getenv("PARAMETER_BYTES") : "";
  const char *at = sizes.c_str();
  for (int place = 0; *at != '\0'; ++place) {
    char *end = nullptr;
    const long bytes = std::strtol(at, &end, 10);
    std::printf("%s\"", place ? ", " : "");
    for (long i = 0; i < bytes; ++i) std::printf("%02x", static_cast<const unsigned char *>(parameters[place])[i]);
    std::printf("\"");
    at = *end == ',' ? end + 1 : end;
  }
  std::printf("]}\n");
  return CUDA_SUCCESS;
}
