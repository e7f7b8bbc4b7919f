// cuBLAS: products are launches that take the time of their FLOPs or of their bytes.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "sim.h"
#include "cublasLt.h"
#include "cublas_v2.h"

struct cublasContext { cudaStream_t stream; };

static cublasStatus_t product(cudaStream_t stream, double m, double n, double k, double count, int single) {
  double compute = 2 * m * n * k * count / (single ? card()->single : card()->half);
  double traffic = (single ? 4 : 2) * count * (m * k + k * n + m * n) / card()->stream;
  lock();
  counters.launches++;
  host_works(card()->launch);
  enqueue(stream_of(stream), card()->launch / 2 + (compute > traffic ? compute : traffic));
  unlock();
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  *handle = calloc(1, sizeof **handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *space, size_t size) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode) {
  *mode = CUBLAS_DEFAULT_MATH;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode) {
  *mode = CUBLAS_POINTER_MODE_HOST;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType at, int lda, const void *b, cudaDataType bt,
                            int ldb, const void *beta, void *c, cudaDataType ct, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
  return product(handle->stream, m, n, k, 1, at == CUDA_R_32F);
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m,
                                          int n, int k, const void *alpha, const void *a, cudaDataType at, int lda,
                                          long long sa, const void *b, cudaDataType bt, int ldb, long long sb,
                                          const void *beta, void *c, cudaDataType ct, int ldc, long long sc, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return product(handle->stream, m, n, k, count, at == CUDA_R_32F);
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                              const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta,
                              float *c, int ldc) {
  return product(handle->stream, m, n, k, 1, 1);
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m,
                                         int n, int k, const float *alpha, const float *a, int lda, long long sa,
                                         const float *b, int ldb, long long sb, const float *beta, float *c, int ldc,
                                         long long sc, int count) {
  return product(handle->stream, m, n, k, count, 1);
}
cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t ta, int m, int n, const float *alpha,
                              const float *a, int lda, const float *x, int ix, const float *beta, float *y, int iy) {
  return product(handle->stream, m, n, 1, 1, 1);
}
cublasStatus_t cublasSdot_v2(cublasHandle_t handle, int n, const float *x, int ix, const float *y, int iy,
                             float *result) {
  return product(handle->stream, 1, 1, n, 1, 1);
}
cublasStatus_t cublasDotEx(cublasHandle_t handle, int n, const void *x, cudaDataType xt, int ix, const void *y,
                           cudaDataType yt, int iy, void *result, cudaDataType rt, cudaDataType et) {
  return product(handle->stream, 1, 1, n, 1, 0);
}

struct layout { double rows, columns; cudaDataType_t type; };

size_t cublasLtGetVersion(void) { return 130100; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute, cudaDataType_t type) {
  *made = calloc(1, 64);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t gone) { free(gone); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t of, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t size) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made) {
  *made = calloc(1, 64);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t gone) {
  free(gone);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t of,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                                    size_t size) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  struct layout *layout = calloc(1, sizeof *layout);
  *layout = (struct layout){rows, columns, type};
  *made = (cublasLtMatrixLayout_t)layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t gone) { free(gone); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t of, cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t size) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *found, int *count) {
  memset(found, 0, sizeof *found);
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t al, const void *b, cublasLtMatrixLayout_t bl, const void *beta,
                              const void *c, cublasLtMatrixLayout_t cl, void *d, cublasLtMatrixLayout_t dl,
                              const cublasLtMatmulAlgo_t *algorithm, void *space, size_t size, cudaStream_t stream) {
  const struct layout *left = (struct layout *)al, *result = (struct layout *)dl;
  double inner = result->rows > 0 ? left->rows * left->columns / result->rows : 0;
  return product(stream, result->rows, result->columns, inner, 1, left->type == CUDA_R_32F);
}
