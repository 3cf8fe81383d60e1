#!/usr/bin/env bash
# Evaluate one training run: each of its checkpoints is served on free GPUs, asked every task N times, judged,
# put together and plotted. The same script again goes on where it was stopped.
#
#   cp examples/batch_eval.sh my_eval.sh; edit the CONFIG section; bash my_eval.sh
#   CKPT_DIR=checkpoints/run_a RUN_JUDGE=0 bash examples/batch_eval.sh    # any of it from the environment
#   bash my_eval.sh --dry-run                                             # flags of `coeval sweep` go behind
#
# Scheduling, servers, restarts and logs are `coeval sweep`'s (coeval sweep --help).
set -euo pipefail

# Take a setting's value, unless the environment has one. Single quotes keep {step}, {name} and {port} as they are.
setting() { [ -n "${!1:-}" ] || printf -v "$1" %s "$2"; }

# ------------------------------------------------------------------------------------------------- CONFIG
setting CKPT_DIR 'checkpoints/run_a'         # the folder of the checkpoints
setting NAME_PATTERN ''                      # where they lie in it: global_step_{step}/actor_hf; empty: found out
setting STEPS ''                             # 120,240,360; empty: all there are
setting BASE_MODEL ''                        # the model before training, as step 0; empty: none
setting OUT_DIR 'outputs/run_a'
setting LOG_DIR "$OUT_DIR/logs"              # logs of servers and evaluations

setting TASKS 'ifeval,ifbench,healthbench,writingbench,arena-hard,alpaca-eval'
setting MAX_EXAMPLES ''                      # of each task, as a smoke test; empty: all
setting N_SAMPLES_IFEVAL 8                   # samples of each prompt
setting N_SAMPLES_IFBENCH 8
setting N_SAMPLES_HEALTHBENCH 8
setting N_SAMPLES_WRITINGBENCH 4
setting N_SAMPLES_ARENA_HARD 1
setting N_SAMPLES_ALPACA_EVAL 1

setting GPUS ''                              # 0,1,2,3; empty: all there are
setting TP_SIZE 1                            # GPUs of one server
setting SERVER_COMMAND 'vllm'                # vllm, sglang, transformers, or a command with {checkpoint}, {name}, {port}
setting NUM_THREADS 64                       # requests in flight to each server
setting MAX_TOKENS 2048                      # longest answer

setting JUDGE_MODEL ''                       # needed by healthbench, writingbench, arena-hard, alpaca-eval
setting JUDGE_BASE_URL ''                    # where it is served; its key: OPENAI_API_KEY and the like, or KEYS
setting KEYS ''                              # a key file; empty: the usual ones
setting JUDGE_BATCH_SIZE 4                   # evaluations judged at a time

setting RUN_INFERENCE 1                      # 0 leaves a phase out
setting RUN_JUDGE 1
setting RUN_PLOT 1
setting COEVAL 'coeval'                      # the command, where it is not in the PATH
# --------------------------------------------------------------------------------------------- end of CONFIG

flags=(--checkpoints "$CKPT_DIR" --out "$OUT_DIR" --log-dir "$LOG_DIR" --tasks "$TASKS")
given() { if [ -n "$2" ]; then flags+=("$1" "$2"); fi; }
phase() {
  case "$3" in
    1) flags+=("--$1") ;;
    0) flags+=("--no-$1") ;;
    *) echo "$2=$3: give 1, or 0 to leave the phase out" >&2; exit 1 ;;
  esac
}

samples=""
IFS=, read -ra names <<< "${TASKS// /}"
for name in "${names[@]}"; do
  variable="N_SAMPLES_$(printf %s "$name" | tr '[:lower:]' '[:upper:]' | tr -c '[:alnum:]' _)"
  if [ -n "${!variable:-}" ]; then samples+="${samples:+,}$name=${!variable}"; fi
done

given --n-samples "$samples"
given --name-pattern "$NAME_PATTERN"
given --steps "$STEPS"
given --base-model "$BASE_MODEL"
given --max-examples "$MAX_EXAMPLES"
given --gpus "$GPUS"
given --tp-size "$TP_SIZE"
given --server-command "$SERVER_COMMAND"
given --num-threads "$NUM_THREADS"
given --max-tokens "$MAX_TOKENS"
given --judge-model "$JUDGE_MODEL"
given --judge-base-url "$JUDGE_BASE_URL"
given --keys "$KEYS"
given --judge-jobs "$JUDGE_BATCH_SIZE"
phase inference RUN_INFERENCE "$RUN_INFERENCE"
phase judge RUN_JUDGE "$RUN_JUDGE"
phase plot RUN_PLOT "$RUN_PLOT"

case " $* " in
  *" --judge-"* | *" --no-judge "* | *" --config"* | *" --status "* | *" --help "*) ;; # said behind the script
  *)
    judged=$(tr ', ' '\n\n' <<< "$TASKS" | grep -xE 'healthbench|writingbench|arena-hard|alpaca-eval' | paste -sd, -) || true
    if [ "$RUN_JUDGE" = 1 ] && [ -n "$judged" ] && { [ -z "$JUDGE_MODEL" ] || [ -z "$JUDGE_BASE_URL" ]; }; then
      echo "$judged: these tasks need a judge. Set JUDGE_MODEL and JUDGE_BASE_URL (such as" \
        "JUDGE_MODEL=gpt-4.1 JUDGE_BASE_URL=https://api.openai.com/v1, with its key in OPENAI_API_KEY)," \
        "judge later (RUN_JUDGE=0), or leave them out (TASKS=ifeval,ifbench)" >&2
      exit 1
    fi
    ;;
esac
if ! command -v "$COEVAL" > /dev/null; then
  echo "$COEVAL is not in the PATH: activate the environment that it is installed in, or set COEVAL" >&2
  exit 127
fi
exec "$COEVAL" sweep "${flags[@]}" "$@"
