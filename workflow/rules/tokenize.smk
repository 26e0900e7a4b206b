# Corpus -> tokens.
#
# in   the corpus a study names: bundled, wikitext-103 through `datasets`, or a local folder or file
# out  results/tokens/<corpus>/<split>.bin (flat uint16) and <split>.json (what it is, and its digest)

tokenizing = tokenizing_resources(call.system())


rule tokenize_corpus:
    output:
        tokens="results/tokens/{corpus}/{split}.bin",
        facts="results/tokens/{corpus}/{split}.json",
    log:
        "results/tokens/{corpus}/{split}.log",
    localrule: tokenizing["local"]
    conda:
        "../../envs/workflow.yaml"
    threads: tokenizing["threads"] or call.all_cores()
    resources:
        **tokenizing["resources"],
    params:
        corpus=lambda wildcards: call.corpus_setting(wildcards.corpus),
    shell:
        f"python {SCRIPTS}/tokenize_corpus.py"
        " --corpus {params.corpus:q} --split {wildcards.split:q}"
        " --output {output.tokens:q} --processes {threads} 2> >(tee {log:q} >&2)"
