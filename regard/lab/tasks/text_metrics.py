"""How near generated texts come to their references, by libraries that others report with."""

from collections.abc import Sequence


def bleu(found: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of the whole corpus, 0 to 100, with sacrebleu's default tokens (13a) and smoothing (exp)."""
    import sacrebleu

    return sacrebleu.corpus_bleu(list(found), [list(references)]).score


def chrf(found: Sequence[str], references: Sequence[str]) -> float:
    """chrF2 of the whole corpus, 0 to 100: character n-grams up to six."""
    import sacrebleu

    return sacrebleu.corpus_chrf(list(found), [list(references)]).score


def rouge_l(found: Sequence[str], references: Sequence[str]) -> float:
    """ROUGE-L's F measure, 0 to 100, the mean over texts; words are lower-cased letters and digits, unstemmed."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    scores = [
        scorer.score(reference, text)["rougeL"].fmeasure
        for reference, text in zip(references, found, strict=True)
    ]
    return 100 * sum(scores) / len(scores)
