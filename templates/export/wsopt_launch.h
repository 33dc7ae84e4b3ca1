/* What the launchers of all kernels that wsopt exports have in common: tensors, and what a call returns. C and C++. */
#ifndef WSOPT_LAUNCH_H
#define WSOPT_LAUNCH_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#define WSOPT_MAX_RANK 8

typedef enum wsopt_status {
  WSOPT_OK = 0,
  WSOPT_BAD_INPUT = 1,    /* tensors or arguments that the kernel does not take */
  WSOPT_BAD_DEVICE = 2,   /* no context, or a device that the kernel does not run on */
  WSOPT_DRIVER_ERROR = 3, /* a call of the CUDA driver failed: wsopt_error has its result */
  WSOPT_OUT_OF_MEMORY = 4 /* of the host; of the device it is a driver's error */
} wsopt_status;

typedef enum wsopt_dtype {
  WSOPT_F32 = 0,
  WSOPT_F16 = 1,
  WSOPT_BF16 = 2,
  WSOPT_F8E4M3 = 3,
  WSOPT_F8E5M2 = 4,
  WSOPT_I32 = 5,
  WSOPT_I8 = 6
} wsopt_dtype;

/* A tensor in device memory: outermost dimension first, strides in elements. */
typedef struct wsopt_tensor {
  CUdeviceptr data;
  wsopt_dtype dtype;
  int rank;
  int64_t shape[WSOPT_MAX_RANK];
  int64_t strides[WSOPT_MAX_RANK];
} wsopt_tensor;

/* What went wrong, in a sentence; written only by calls that return something else than WSOPT_OK. */
typedef struct wsopt_error {
  CUresult driver;
  char message[512];
} wsopt_error;

#endif
