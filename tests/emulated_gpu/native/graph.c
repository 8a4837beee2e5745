/* CUDA graphs. A graph is a list of nodes in the order in which they were added, which respects their dependencies; an
 * executable graph is the graph itself, and launching it runs the nodes. */
#include "nullgpu.h"

#include <stdlib.h>
#include <string.h>

struct CUgraphNode_st {
  Work work;
  int disabled;
  CUgraph child;
};
struct CUgraph_st {
  CUgraphNode *nodes;
  size_t count, capacity;
};
static __thread CUgraph capture;

static CUgraphNode append(CUgraph graph, CUgraphNodeType type) {
  if (graph->count == graph->capacity)
    graph->nodes = realloc(graph->nodes, sizeof *graph->nodes * (graph->capacity = graph->capacity ? 2 * graph->capacity : 16));
  CUgraphNode node = graph->nodes[graph->count++] = calloc(1, sizeof *node);
  node->work.type = type;
  return node;
}

static void play(CUgraph graph) {
  for (size_t i = 0; i < graph->count; i++) {
    CUgraphNode node = graph->nodes[i];
    Work *work = &node->work;
    if (node->disabled) continue;
    if (work->library) ng_count("library", work->library, 1);
    else if (node->child) play(node->child);
    else if (work->type == CU_GRAPH_NODE_TYPE_KERNEL) ng_count_launch(work->kernel, "graph kernel");
    else if (work->type == CU_GRAPH_NODE_TYPE_MEMSET) ng_countf("fill", 1, "%zu", work->bytes);
    else if (work->type == CU_GRAPH_NODE_TYPE_MEMCPY)
      ng_copy(ng_direction(work->to, work->from), work->to, work->from, work->bytes);
  }
}

/* ---- capture: the work of the calling thread goes into a graph */

int ng_capturing(void) { return capture != NULL; }
int ng_capture(Work work) {
  if (capture) append(capture, work.type)->work = work;
  return capture != NULL;
}
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) { return cuGraphCreate(&capture, 0); }
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) {
  capture = graph;
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  *graph = capture;
  capture = NULL;
  return CUDA_SUCCESS;
}

/* ---- building */

CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
  *graph = calloc(1, sizeof **graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) { return CUDA_SUCCESS; } /* executable graphs may still run it */
CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count) {
  *node = append(graph, CU_GRAPH_NODE_TYPE_EMPTY);
  return CUDA_SUCCESS;
}
static CUresult set_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters) {
  node->work.kernel = parameters->func;
  return parameters->func ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS *parameters) {
  *node = append(graph, CU_GRAPH_NODE_TYPE_KERNEL);
  return set_kernel(*node, parameters);
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec graph, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters) {
  return set_kernel(node, parameters);
}
static CUresult set_copy(CUgraphNode node, const CUDA_MEMCPY3D *p) {
  Work *work = &node->work;
  work->to = p->dstMemoryType == CU_MEMORYTYPE_HOST ? p->dstHost : (void *)p->dstDevice;
  work->from = p->srcMemoryType == CU_MEMORYTYPE_HOST ? p->srcHost : (void *)p->srcDevice;
  work->bytes = p->WidthInBytes * (p->Height ? p->Height : 1) * (p->Depth ? p->Depth : 1);
  return CUDA_SUCCESS;
}
CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                              const CUDA_MEMCPY3D *parameters, CUcontext context) {
  *node = append(graph, CU_GRAPH_NODE_TYPE_MEMCPY);
  return set_copy(*node, parameters);
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec graph, CUgraphNode node, const CUDA_MEMCPY3D *parameters,
                                        CUcontext context) {
  return set_copy(node, parameters);
}
static CUresult set_fill(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p) {
  node->work.bytes = p->elementSize * p->width * (p->height ? p->height : 1);
  return CUDA_SUCCESS;
}
CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context) {
  *node = append(graph, CU_GRAPH_NODE_TYPE_MEMSET);
  return set_fill(*node, parameters);
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec graph, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *parameters,
                                        CUcontext context) {
  return set_fill(node, parameters);
}
CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                  CUgraph child) {
  *node = append(graph, CU_GRAPH_NODE_TYPE_GRAPH);
  (*node)->child = child;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec graph, CUgraphNode node, CUgraph child) {
  node->child = child;
  return CUDA_SUCCESS;
}

/* ---- queries */

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
  *type = node->work.type;
  return CUDA_SUCCESS;
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  for (size_t i = 0; nodes && i < *count && i < graph->count; i++) nodes[i] = graph->nodes[i];
  *count = graph->count;
  return CUDA_SUCCESS;
}
/* Work is done in the order of the list, so the first node is the only one that waits for none. */
CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  if (nodes && *count && graph->count) nodes[0] = graph->nodes[0];
  *count = graph->count > 0;
  return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies, size_t *count) {
  *count = 0;
  return CUDA_SUCCESS;
}

/* ---- launches */

CUresult cuGraphInstantiate(CUgraphExec *result, CUgraph graph, unsigned long long flags) {
  *result = (CUgraphExec)graph;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecUpdate(CUgraphExec result, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
  *(CUgraph)result = *graph;
  memset(info, 0, sizeof *info);
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec graph) { return CUDA_SUCCESS; }
CUresult cuGraphNodeSetEnabled(CUgraphExec graph, CUgraphNode node, unsigned enabled) {
  node->disabled = !enabled;
  return CUDA_SUCCESS;
}
CUresult cuGraphUpload(CUgraphExec graph, CUstream stream) { return CUDA_SUCCESS; }
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  ng_countf("graph launch", 1, "device %d", ng_current_device());
  play((CUgraph)graph);
  return CUDA_SUCCESS;
}
