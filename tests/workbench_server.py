"""A workbench that is served, asked without a browser."""

import http.client
import json
from dataclasses import dataclass
from typing import Any

from csml.explorer.explore import Explorer
from csml.explorer.workbench import Workbench


@dataclass
class Server:
    """A page that is server, and its secret."""

    explorer: Explorer

    @property
    def bench(self) -> Workbench:
        return self.explorer._workbench

    @property
    def port(self) -> int:
        return int(self.explorer.address.split(":")[2].split("/")[0])

    @property
    def token(self) -> str:
        return self.explorer.address.split("token=")[1]

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """With the cookie, unless another one is given."""
        headers = {"Cookie": f"csml-{self.port}={self.token}"} | headers
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.putheader("Content-Length", str(len(body or b"")))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())

    def get(self, path: str) -> Any:
        status, content, _ = self.ask(path)
        assert status == 200, content
        return json.loads(content)

    def post(self, path: str, body: Any) -> tuple[int, bytes]:
        status, content, _ = self.ask(path, "POST", json.dumps(body).encode(), Content_Type="application/json")
        return status, content
