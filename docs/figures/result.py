"""Draws result.svg, the picture of the README: what a fit finds in made-up answers. `python docs/figures/result.py`."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np

import plmix_dist as plm
from plmix_dist.plots import plot_worths

DISHES = ["lentil soup", "curry", "pizza", "falafel", "salad", "steak", "fish", "dumplings"]
# Log-worths of three tastes: plants, comfort, the sea.
TASTES = np.array(
    [
        [1.2, 1.0, -0.2, 1.6, 0.9, -2.2, -1.5, -0.6],
        [-0.8, 0.2, 2.0, -0.5, -1.6, 1.6, -0.8, 0.6],
        [0.0, 0.6, -1.0, -0.6, 0.8, -0.9, 1.9, 1.2],
    ]
)
SHARES = np.array([0.5, 0.3, 0.2])


def main() -> None:
    """Fit the rankings of 400 people, and draw what each group likes."""
    rng = np.random.default_rng(4)
    groups = rng.choice(3, size=400, p=SHARES)
    orders = np.argsort(-(TASTES[groups] + rng.gumbel(size=(400, 8))), axis=1)
    answers = [[DISHES[item] for item in order] for order in orders]
    model = plm.PlackettLuceMixture(3, random_state=0).fit(answers)
    errors = model.standard_errors(answers)
    # Words become paths, so that they look the same everywhere; the card is light on light and dark pages alike.
    plt.rcParams |= {"svg.fonttype": "path", "svg.hashsalt": "plmix", "font.size": 9, "axes.titlesize": 10}
    figure, panels = plt.subplots(1, 3, figsize=(9.2, 2.9), layout="constrained", sharex=True)
    for number, panel in enumerate(panels):
        plot_worths(model, number, standard_errors=errors, ax=panel)
        panel.set_title(f"group {number}: {100 * model.shares_[number]:.0f} % of the people")
        panel.set_xlabel("")
        panel.set_xticks([-2, 0, 2])
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    panels[1].set_xlabel("log-worth, with 95 % intervals: 0 is an average dish")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
    target = Path(__file__).with_name("result.svg")
    figure.savefig(target, facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main()
