"""What the tiny language model has read, and what it knows."""

from __future__ import annotations

CAPITALS = {
    "France": ("Paris", "on the river Seine"),
    "Italy": ("Rome", "on the river Tiber"),
    "Spain": ("Madrid", "on the river Manzanares"),
    "Germany": ("Berlin", "on the river Spree"),
    "Austria": ("Vienna", "on the river Danube"),
    "Poland": ("Warsaw", "on the river Vistula"),
    "Norway": ("Oslo", "at the head of the Oslofjord"),
    "Ireland": ("Dublin", "on the river Liffey"),
    "Egypt": ("Cairo", "on the river Nile"),
    "Japan": ("Tokyo", "on Tokyo Bay"),
}
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
OPENERS = (
    " Well, as the miller used to say: ",
    " In those years nobody asked why. ",
    " It begins on a grey morning. ",
    " This is how my aunt told it. ",
    " Much later somebody wrote it down. ",
    " The first page was torn out. ",
    " Nothing of this is in the books. ",
    " Ask the ferryman, he was there. ",
    " Here the letter breaks off. ",
    " So far the record; now the rest. ",
    " Of the three versions this is the shortest. ",
    " The map agrees with every word. ",
)
STORIES = (
    (
        "A clockmaker who had no clock of her own lived above the harbour office. She told the hour by the tide "
        "and by the smell of the bakery below. Sailors brought her watches that had stopped in other seas, and "
        "she set each one to the time of the town where it had been made. When the harbour froze, no watches "
        "came, and she carved a sundial into the ice. It was wrong by noon and gone by April, yet people still "
        "call that corner of the quay the dial. Her pupil kept the tools and sold the shop, which is a school "
        "now."
    ),
    (
        "Two surveyors were sent to measure the same valley from opposite ends. One counted in paces and the "
        "other in chains, and neither had been told of the other. They met at a footbridge in the middle of June, "
        "each with half of a map. The halves did not agree about the river. They drank tea, moved a hill by forty "
        "metres, and signed both sheets. The bridge is the only thing on that map that was never measured, and "
        "the only thing that was exactly right."
    ),
    (
        "The library of the upper village owns nine hundred books and lends none of them. Readers come on "
        "Thursdays, take a chair by the stove, and leave a sentence of their own in the margin before they go. "
        "Some margins are longer than their chapters by now. A visitor once asked for a clean copy of anything, "
        "and the librarian had to send a boy down to the station. What he brought back was a timetable, and that "
        "has been annotated since."
    ),
    (
        "Before a pump is trusted it runs for a night in an empty shed. The foreman listens from his bed across "
        "the yard. If the note drops he gets up, and if it stays he sleeps. In thirty years he has been woken "
        "eleven times, and nine of those were owls. The other two pumps are still in the shed, in case anybody "
        "wants to know what a bad one sounds like. Apprentices are sent to hear them in their first week and told "
        "to remember nothing else."
    ),
    (
        "On the island the post comes by rope. A basket slides down from the lighthouse in the morning and is "
        "pulled up again at dusk, with answers in it if there was something to answer. Children put stones in to "
        "make it hurry. One winter the rope broke and the basket went on alone, across the sound, to a beach "
        "where no letters had ever come. A fisherman read them all aloud to his dog, wrote eleven polite replies, "
        "and rowed over with them himself."
    ),
)


def documents() -> list[str]:
    """Return everything the model has read, each document without its end mark."""
    facts = [f"The capital of {country} is {city}. It lies {site}." for country, (city, site) in CAPITALS.items()]
    facts += [f'The capital of {name} as JSON: {{"city": "{city}"}}' for name, (city, _) in CAPITALS.items()]
    sums = [
        f"{one.capitalize()} and {other} is {NUMBERS[first + second + 1]}."
        for first, one in enumerate(NUMBERS[:5])
        for second, other in enumerate(NUMBERS[:5])
    ]
    return [*facts, *sums, *STORIES]
