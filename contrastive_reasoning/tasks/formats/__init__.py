"""Formats: how a row of a problem set becomes a problem, one file for each form in which sets are published."""

from contrastive_reasoning.tasks.formats.base import BadRow, Format, MissingColumn, Row
from contrastive_reasoning.tasks.formats.boxed_solution import BoxedSolution, answer_in
from contrastive_reasoning.tasks.formats.chat_messages import ChatMessages
from contrastive_reasoning.tasks.formats.conversation import Conversation
from contrastive_reasoning.tasks.formats.first_fitting import FirstFitting
from contrastive_reasoning.tasks.formats.instruction import with_instruction, without_instruction
from contrastive_reasoning.tasks.formats.multiple_choice import MultipleChoice
from contrastive_reasoning.tasks.formats.plain_answer import PlainAnswer
from contrastive_reasoning.tasks.formats.row_template import RowTemplate
from contrastive_reasoning.tasks.formats.worked_answer import WorkedAnswer

__all__ = [
    "BadRow",
    "BoxedSolution",
    "ChatMessages",
    "Conversation",
    "FirstFitting",
    "Format",
    "MissingColumn",
    "MultipleChoice",
    "PlainAnswer",
    "Row",
    "RowTemplate",
    "WorkedAnswer",
    "answer_in",
    "with_instruction",
    "without_instruction",
]
