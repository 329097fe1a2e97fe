"""What people write besides."""

from __future__ import annotations

from tests.fuzz.grammar.rules import family, rows

WORLD = (
    family(
        "habits",
        4,
        rows,
        "{r} = ({x}.round() - {x}).detach() + {x}",
        "{r} = {x} + ({x}.sign() - {x}).detach()",
        "with torch.no_grad():\n    {r}n = {x}.abs().mean()\n{r} = {x} / ({r}n + 0.1)",
        "with torch.autocast('cpu', torch.bfloat16):\n    {r} = {x} @ {s}.mT",
        (
            "{r} = torch.utils.checkpoint.checkpoint(self.inner_{n}, {x}, use_reentrant=False)",
            "self.inner_{n} = nn.Sequential(nn.Linear({L}, {o}), nn.Tanh(), nn.Dropout({p}))",
        ),
        (
            "{r} = self.normed_{n}({x})",
            "self.normed_{n} = nn.utils.parametrizations.weight_norm(nn.Linear({L}, {o}))",
        ),
        (
            "{r} = self.spectral_{n}({x})",
            "self.spectral_{n} = nn.utils.parametrizations.spectral_norm(nn.Linear({L}, {o}))",
        ),
        (
            "with torch.no_grad():\n    self.unit_{n}.div_(self.unit_{n}.norm() + 0.1)\n{r} = {x} @ self.unit_{n}",
            "self.unit_{n} = nn.Parameter(torch.randn({L}, {o}))",
        ),
        (
            "{r} = self.layers_{n}[0]({x}) - self.layers_{n}[2](self.layers_{n}[1]({x}).new_ones({S}))",
            "self.layers_{n} = nn.ModuleList(nn.Linear({L}, {o}) for _ in range(3))",
        ),
        (
            "{r} = {x}\nfor v{n}w in self.weights_{n}:\n    {r} = {r} * v{n}w",
            "self.weights_{n} = nn.ParameterList(torch.ones({L}) for _ in range(2))",
        ),
        (
            "{r} = torch.cat([self.token_{n}.expand({x}.size(0), {L}), {x}.reshape({x}.size(0), -1, {L})[:, 0]])",
            "self.token_{n} = nn.Parameter(torch.randn(1, {L}))",
        ),
        (
            (  # of the nearest code
                "{r}i = torch.cdist({x}.reshape(-1, {L}), self.codes_{n}).argmin(-1)\n"
                "{r} = self.codes_{n}[{r}i].view({S})\n{r} = {x} + ({r} - {x}).detach()"
            ),
            "self.register_buffer('codes_{n}', torch.randn(4, {L}))",
        ),
        (
            (
                "{r} = self.online_{n}({x}) - self.target_{n}({x}).detach()\nwith torch.no_grad():\n"
                "    self.target_{n}.weight.lerp_(self.online_{n}.weight, 0.1)"
            ),
            "self.online_{n} = nn.Linear({L}, {o}, bias=False)",
            "self.target_{n} = nn.Linear({L}, {o}, bias=False).requires_grad_(False)",
        ),
        "{r} = torch.fft.rfft({x}).abs()",
        "{r} = torch.view_as_real(torch.fft.fft({x})).sum(-1)",
        "{r} = {x}.float().to({x}.dtype)",
        "{r} = torch.utils.checkpoint.checkpoint(lambda t: torch.tanh(t) * t, {x}, use_reentrant=False)",
        "{r} = {x}.where({x} > 0, torch.zeros(()))",
        "{r} = torch.stack([t * {f} for t in {x}])",
        "{r} = [{x}, {s}][0] + [{x}, {s}][1]",
        "{r} = torch.func.vmap(lambda t: t * {f})({x})",
    ),
)
