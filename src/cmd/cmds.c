/* cmds.c: the table of commands, in the order of --help. */
#include "cmd/cmd.h"

const rk_cmd rk_cmds[] = {
	{ &rk_cmd_chat_opt, rk_cmd_chat },
	{ &rk_cmd_demo_opt, rk_cmd_demo },
	{ &rk_cmd_run_opt, rk_cmd_run },
	{ &rk_cmd_ppl_opt, rk_cmd_ppl },
	{ &rk_cmd_compare_opt, rk_cmd_compare },
	{ &rk_cmd_eval_opt, rk_cmd_eval },
	{ &rk_cmd_replay_opt, rk_cmd_replay },
	{ &rk_cmd_stats_opt, rk_cmd_stats },
	{ &rk_cmd_export_opt, rk_cmd_export },
	{ &rk_cmd_bench_opt, rk_cmd_bench },
	{ &rk_cmd_info_opt, rk_cmd_info },
	{ &rk_cmd_tokenize_opt, rk_cmd_tokenize },
	{ &rk_cmd_manual_opt, rk_cmd_manual },
	{ 0 }
};
