// A CUDA device for a torch that was built for CPUs: what autograd and c10::Stream ask of one, so that fake tensors on
// "cuda" have streams and events. Nothing is computed or copied. Compiled at first use against the installed torch.
//
// REQUIRES: loaded before torch itself is imported, because torch makes its CUDA hooks once, at import.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cstdint>

namespace {

// What the callback is told.
enum Kind : int { kRecord = 1, kBlock = 2, kSynchronize = 3 };
using Callback = void (*)(int kind, int64_t event, int64_t stream);

// Events that torch makes itself are numbered from here; those of Python count from 1.
constexpr int64_t kFirstEvent = 1'000'000'000;
constexpr int64_t kNone = -1;

thread_local int64_t tls_stream = 0;
thread_local int8_t tls_device = 0;
std::atomic<int64_t> next_event{kFirstEvent};
std::atomic<int> num_devices{8};
Callback callback = nullptr;

void tell(Kind kind, int64_t event, int64_t stream) {
  if (callback != nullptr) callback(kind, event, stream);
}

int8_t exchange_device(int8_t index) {
  const int8_t old = tls_device;
  if (index >= 0) tls_device = index;
  return old;
}

struct FakeGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device device) const override { return made(exchange_device(device.index())); }
  c10::Device getDevice() const override { return made(tls_device); }
  void setDevice(c10::Device device) const override { exchange_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { exchange_device(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(num_devices); }

  c10::Stream getStream(c10::Device) const override { return stream(tls_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const int64_t old = tls_stream;
    tls_stream = next.id();
    return stream(old);
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& one) const override { tell(kSynchronize, kNone, one.id()); }
  void synchronizeDevice(const c10::DeviceIndex) const override { tell(kSynchronize, kNone, kNone); }

  // An event is its number; recording it again gives it the next one, as a wait means the latest record before it.
  void record(void** event, const c10::Stream& one, const c10::DeviceIndex, const c10::EventFlag) const override {
    const int64_t number = next_event++;
    *event = reinterpret_cast<void*>(number);
    tell(kRecord, number, one.id());
  }
  void block(void* event, const c10::Stream& one) const override {
    tell(kBlock, reinterpret_cast<int64_t>(event), one.id());
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void* event) const override { tell(kSynchronize, reinterpret_cast<int64_t>(event), kNone); }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

 private:
  static c10::Device made(int8_t index) { return {c10::DeviceType::CUDA, index}; }
  static c10::Stream stream(int64_t id) { return c10::Stream(c10::Stream::UNSAFE, made(tls_device), id); }
};

FakeGuard guard;
c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, &guard);

// What at::getAccelerator() and the autograd engine ask.
struct FakeHooks final : at::CUDAHooksInterface {
  explicit FakeHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void*) const override { return false; }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  at::DeviceIndex current_device() const override { return tls_device; }
  at::DeviceIndex getCurrentDevice() const override { return tls_device; }
  void setCurrentDevice(at::DeviceIndex index) const override { exchange_device(index); }
  at::DeviceIndex exchangeDevice(at::DeviceIndex index) const override { return exchange_device(index); }
  at::DeviceIndex maybeExchangeDevice(at::DeviceIndex index) const override { return exchange_device(index); }
  at::DeviceIndex deviceCount() const override { return static_cast<at::DeviceIndex>(num_devices); }
  int getNumGPUs() const override { return num_devices; }
  const at::Generator& getDefaultGenerator(at::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(at::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  void deviceSynchronize(at::DeviceIndex) const override { tell(kSynchronize, kNone, kNone); }
};

}  // namespace

namespace at {
namespace {
using CUDAHooks = ::FakeHooks;  // the name under which torch looks for them
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, CUDAHooks)
}  // namespace
}  // namespace at

// What rostam_py/capturing calls through ctypes.
extern "C" {
int64_t rostam_stream() { return tls_stream; }
void rostam_set_stream(int64_t id) { tls_stream = id; }
int rostam_device() { return tls_device; }
void rostam_set_device(int index) { tls_device = static_cast<int8_t>(index); }
void rostam_set_callback(Callback told) { callback = told; }
void rostam_set_num_devices(int number) { num_devices = number; }
}
