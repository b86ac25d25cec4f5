/* step.cu: a decode step as one CUDA graph: recorded once per shape, then replayed with new tokens, positions and
 * lanes.
 *
 * The engine calls step_begin with all that changes, and it is copied to the device in one piece.  If this shape was
 * recorded, the graph is launched and the engine skips the operations; else they are recorded as the engine issues
 * them, and step_end launches the result.  A shape is: which lanes, their policies, whether they keep C_f, whether a
 * layer may select in this step, and whether that renews a stand-in.  Addresses are part of a recording, so allocating
 * or freeing device memory forgets all of them.
 */
#include "attn.cuh"

#include <string.h>

bool rk_cuda_may_select(const rk_lane_cache *l)
{
	const rk_policy *p = &l->pol;

	if (p->score == RK_SCORE_NONE || !l->keeps_full)
		return false;
	return l->force_full || rk_renews(*l) ||
	       (p->refresh == RK_REFRESH_STRIDE && l->step % p->stride == p->stride - 1) ||
	       (p->refresh == RK_REFRESH_QUERY && l->step % p->qc == p->qc - 1);
}

static void put_lane(rk_dev_lane *to, const rk_lane_cache *l)
{
	to->c = *l;
	to->c.prompt = NULL;
	to->prompt = *l->prompt;
}

int rk_cuda_slot(rk_cuda *c, const rk_lane_cache *lane)
{
	rk_dev_lane *to = &c->step_host->lane[RK_CUDA_SLOT - 1], now;

	for (int j = 0; j < c->n_step; j++)
		if (c->lane[j] == lane)
			return j;
	memset(&now, 0, sizeof now);
	put_lane(&now, lane);
	if (!memcmp(&now, to, sizeof now))
		return RK_CUDA_SLOT - 1;	/* layer after layer asks for the same lane */
	if (rk_cuda_ok(c, cudaStreamSynchronize(c->stream), "wait for the lane's last copy")) {
		*to = now;
		rk_cuda_ok(c, cudaMemcpyAsync(&c->step->lane[RK_CUDA_SLOT - 1], to, sizeof *to, cudaMemcpyHostToDevice,
		                              c->stream), "copy of a lane");
	}
	return RK_CUDA_SLOT - 1;
}

bool rk_cuda_stepping(const rk_cuda *c, const rk_store *st)
{
	for (int j = 0; j < c->n_step; j++)
		if (&c->lane[j]->tail == st)
			return true;
	return false;
}

void rk_cuda_churn(const rk_cuda *c, const rk_lane_cache *lane, const rk_dev_out *out, int layer, rk_step_report *rep)
{
	int k = lane->budget < lane->n_pos ? lane->budget : lane->n_pos;
	bool selected = rep->kind[layer] != RK_STEP_PARTIAL && lane->pol.score != RK_SCORE_NONE;

	rep->churn[layer] = selected ? (float)out->fresh[layer] / (float)(k * c->dims.n_kv) : NAN;
}

void rk_cuda_forget_graphs(rk_cuda *c)
{
	for (int i = 0; i < RK_CUDA_GRAPH; i++) {
		if (c->graph[i].exec)
			rk_cuda_ok(c, cudaGraphExecDestroy(c->graph[i].exec), "cudaGraphExecDestroy");
		c->graph[i] = rk_graph{};
	}
}

static bool same_shape(const rk_graph *g, const rk_graph *want)
{
	if (g->n != want->n)
		return false;
	for (int j = 0; j < want->n; j++)
		if (g->lane[j] != want->lane[j] || memcmp(&g->pol[j], &want->pol[j], sizeof g->pol[j]) ||
		    g->keeps_full[j] != want->keeps_full[j] ||
		    g->may_select[j] != want->may_select[j] || g->renews[j] != want->renews[j])
			return false;
	return true;
}

bool rk_cuda_step_begin(rk_backend *b, rk_lane_cache *const lanes[], int n, const int32_t *ids, const int32_t *pos)
{
	rk_cuda *c = (rk_cuda *)b;
	rk_graph *g = &c->graph[c->next_graph], want = {};

	c->n_step = n;
	want.n = n;
	for (int j = 0; j < n; j++) {
		c->lane[j] = want.lane[j] = lanes[j];
		want.pol[j] = lanes[j]->pol;
		want.keeps_full[j] = lanes[j]->keeps_full;
		c->may_select[j] = want.may_select[j] = rk_cuda_may_select(lanes[j]);
		want.renews[j] = rk_renews(*lanes[j]);
		c->step_host->ids[j] = ids[j];
		c->step_host->pos[j] = pos[j];
		put_lane(&c->step_host->lane[j], lanes[j]);
	}
	c->row_pos[0] = -1;	/* the table of angles is the step's from here on */
	c->recording = false;
	if (!rk_cuda_alive(c) ||
	    !rk_cuda_ok(c, cudaMemcpyAsync(c->step, c->step_host,
	                                   offsetof(rk_dev_step, lane) + (size_t)n * sizeof(rk_dev_lane),
	                                   cudaMemcpyHostToDevice,
	                                   c->stream), "copy of the step's input"))
		return true;	/* there is nothing to do any more */
	for (int i = 0; i < RK_CUDA_GRAPH; i++)
		if (c->graph[i].exec && same_shape(&c->graph[i], &want)) {
			rk_cuda_ok(c, cudaGraphLaunch(c->graph[i].exec, c->stream), "cudaGraphLaunch");
			return true;
		}
	if (g->exec)
		rk_cuda_ok(c, cudaGraphExecDestroy(g->exec), "cudaGraphExecDestroy");
	*g = want;
	c->recording = rk_cuda_ok(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal),
	                          "cudaStreamBeginCapture");
	if (c->recording && rk_cuda_ok(c, cudaMemsetAsync(c->out, 0, (size_t)n * sizeof *c->out, c->stream),
	                               "cudaMemsetAsync"))
		rk_cuda_rope_table(c, c->step->pos, n);
	return !c->recording;
}

/* Ends the recording and runs what was recorded. */
static void launch_recording(rk_cuda *c)
{
	rk_graph *g = &c->graph[c->next_graph];
	cudaGraph_t graph;

	c->recording = false;
	bool clean = rk_cuda_ok(c, cudaGetLastError(), "recording of a step");
	if (!rk_cuda_ok(c, cudaStreamEndCapture(c->stream, &graph), "cudaStreamEndCapture"))
		return;
	bool made = clean && rk_cuda_ok(c, cudaGraphInstantiate(&g->exec, graph, 0), "cudaGraphInstantiate");
	rk_cuda_ok(c, cudaGraphDestroy(graph), "cudaGraphDestroy");
	if (!made) {
		*g = rk_graph{};
		return;
	}
	rk_cuda_ok(c, cudaGraphLaunch(g->exec, c->stream), "cudaGraphLaunch");
	c->next_graph = (c->next_graph + 1) % RK_CUDA_GRAPH;
}

void rk_cuda_step_end(rk_backend *b, rk_step_report *const reports[], int64_t ns_attn[])
{
	rk_cuda *c = (rk_cuda *)b;
	int n = c->n_step;

	if (c->recording)
		launch_recording(c);
	c->n_step = 0;
	if (!rk_cuda_alive(c) ||
	    !rk_cuda_ok(c, cudaMemcpyAsync(c->out_host, c->out, (size_t)n * sizeof *c->out, cudaMemcpyDeviceToHost,
	                                   c->stream), "copy of the reports") ||
	    !rk_cuda_ok(c, cudaStreamSynchronize(c->stream), "decode step"))
		return;
	for (int j = 0; j < n; j++) {
		const rk_dev_out *out = &c->out_host[j];
		*reports[j] = out->rep;
		for (int l = 0; l < c->b.hp->n_layer; l++)
			rk_cuda_churn(c, c->lane[j], out, l, reports[j]);
		ns_attn[j] = out->ns_attn + (int64_t)(out->t_end - out->t0);
	}
}
