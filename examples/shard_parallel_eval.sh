#!/usr/bin/env bash
# Evaluate one model as fast as the GPUs allow: every GPU serves it, and the prompts are divided among them.
# The same script again goes on where it was stopped, also with another number of GPUs.
#
#   cp examples/shard_parallel_eval.sh my_eval.sh; edit the CONFIG section; bash my_eval.sh
#   MODEL=Qwen/Qwen3-4B GPUS=0,1 bash examples/shard_parallel_eval.sh     # any of it from the environment
#   bash my_eval.sh --dry-run                                             # flags of `coeval sweep` go behind
#
# Results lie in OUT_DIR/step_0/run_0/TASK: to `coeval sweep` the model is a training run of one step.
set -euo pipefail

# Take a setting's value, unless the environment has one. Single quotes keep {step}, {name} and {port} as they are.
setting() { [ -n "${!1:-}" ] || printf -v "$1" %s "$2"; }

# ------------------------------------------------------------------------------------------------- CONFIG
setting MODEL 'Qwen/Qwen3-4B'                # a folder, or a name at the Hugging Face hub
setting OUT_DIR "outputs/$(basename "$MODEL")"
setting LOG_DIR "$OUT_DIR/logs"              # logs of servers and evaluations

setting TASKS 'ifeval,ifbench,healthbench,writingbench,arena-hard,alpaca-eval'
setting MAX_EXAMPLES ''                      # of each task, as a smoke test; empty: all
setting N_SAMPLES_IFEVAL 1                   # samples of each prompt
setting N_SAMPLES_IFBENCH 1
setting N_SAMPLES_HEALTHBENCH 1
setting N_SAMPLES_WRITINGBENCH 1
setting N_SAMPLES_ARENA_HARD 1
setting N_SAMPLES_ALPACA_EVAL 1

setting GPUS '0,1,2,3,4,5,6,7'
setting TP_SIZE 1                            # GPUs of one server
setting SHARDS ''                            # servers; empty: as many as the GPUs allow
setting SERVER_COMMAND 'vllm'                # vllm, sglang, transformers, or a command with {checkpoint}, {name}, {port}
setting NUM_THREADS 64                       # requests in flight to each server
setting MAX_TOKENS 2048                      # longest answer

setting JUDGE_MODEL ''                       # needed by healthbench, writingbench, arena-hard, alpaca-eval
setting JUDGE_BASE_URL ''                    # where it is served; its key: OPENAI_API_KEY and the like, or KEYS
setting KEYS ''                              # a key file; empty: the usual ones
setting JUDGE_BATCH_SIZE 4                   # evaluations judged at a time

setting RUN_INFERENCE 1                      # 0 leaves a phase out
setting RUN_JUDGE 1
setting RUN_PLOT 0                           # a curve of one point
setting COEVAL 'coeval'                      # the command, where it is not in the PATH
# --------------------------------------------------------------------------------------------- end of CONFIG

if [ -z "$SHARDS" ]; then
  IFS=, read -ra gpus <<< "$GPUS"
  SHARDS=$(( ${#gpus[@]} / TP_SIZE ))
fi

flags=(--base-model "$MODEL" --out "$OUT_DIR" --log-dir "$LOG_DIR" --tasks "$TASKS" --shards "$SHARDS")
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
