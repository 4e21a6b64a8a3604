"""The questions of the laboratory, one file each: values, which the engine runs."""

from regard.core import Catalog
from regard.lab.questions.fingerprint import FINGERPRINT
from regard.lab.questions.speed import SPEED

QUESTIONS = Catalog("question", (FINGERPRINT, SPEED))
