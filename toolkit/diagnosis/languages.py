"""Says how messages of systems, shells and compilers read in other languages than English."""

# ruff: noqa: RUF001  Other alphabets have letters and signs that look like Latin ones.

import re
from collections.abc import Mapping
from typing import Final

# Logs are folded to lower case as far as they are ASCII: another capital letter is left out at the start.

_NO_FILE: Final = (
    ": 没有那个文件或目录|：没有那个文件或目录|: 沒有此一檔案或目錄|: Datei oder Verzeichnis nicht gefunden|"
    ": Aucun fichier ou dossier de ce|: No existe el archivo o el directorio|: No existe el fichero o el|"
    ": Arquivo ou diretório inexistente|: File o directory non esistente|"
    ": そのようなファイルやディレクトリはありません|: 그런 파일이나 디렉터리가 없습니다"
)
_MESSAGES: Final[Mapping[str, str]] = {
    ": command not found": (
        ": 未找到命令|：未找到命令|: 找不到命令|: 指令找不到|: Kommando nicht gefunden|: Befehl nicht gefunden|"
        " : commande introuvable|: commande introuvable|: orden no encontrada|: no se encontró la orden|"
        ": команда не найдена|: comando não encontrado|: comando non trovato|: コマンドが見つかりません|"
        ": 명령어를 찾을 수 없음"
    ),
    " is not recognized as an internal or external command": (
        " 不是内部或外部命令| 不是內部或外部命令| wird nicht als interner| ist entweder falsch geschrieben|"
        " n'est pas reconnu en tant que commande| n’est pas reconnu en tant que commande|"
        " no se reconoce como un comando| не является внутренней| não é reconhecido como um comando|"
        " non è riconosciuto come comando| は、内部コマンド|은(는) 내부 또는 외부 명령"
    ),
    " is not recognized as the name of a cmdlet": (
        " is not recognized as a name of a cmdlet|项识别为|詞彙辨識為| wurde nicht als Name eines|"
        " n'est pas reconnu comme nom| no se reconoce como nombre| не распознано как имя|"
        " não é reconhecido como nome| non è riconosciuto come nome| は、コマンドレット"
    ),
    "Access is denied": (
        "拒绝访问|存取被拒|Zugriff verweigert|Accès refusé|Acceso denegado|тказано в доступе|Acesso negado|"
        "Accesso negato|アクセスが拒否されました|액세스가 거부되었습니다"
    ),
    "No space left on device": (
        "设备上没有空间|裝置上已無多餘空間|ist kein Speicherplatz mehr verfügbar|Aucun espace disponible sur le|"
        "No queda espacio en el dispositivo|а устройстве не осталось свободного места|"
        "Não há espaço disponível no dispositivo|Spazio esaurito|デバイスに空き領域がありません|"
        "장치에 남은 공간이 없음"
    ),
    ": No such file or directory": _NO_FILE,
    ": No such file": _NO_FILE,
    "fatal error: ": (
        "致命错误： |致命错误：|致命错误: |致命錯誤：|schwerwiegender Fehler: |erreur fatale : |error fatal: |"
        "фатальная ошибка: |erro fatal: |errore fatale: |致命的エラー: |치명적인 오류: "
    ),
    "Segmentation fault": (
        "段错误|段錯誤|記憶體區段錯誤|Speicherzugriffsfehler|Erreur de segmentation|Violación de segmento|"
        "шибка сегментирования|Falha de segmentação|Errore di segmentazione|セグメンテーション違反|"
        "Segmentation 違反|세그멘테이션 오류"
    ),
    "Illegal instruction": (
        "非法指令|Ungültiger Maschinenbefehl|Instruction non permise|Instrucción ilegal|едопустимая инструкция|"
        "едопустимая команда|Instrução ilegal|Istruzione non consentita|不正な命令"
    ),
    "Aborted (core dumped)": (
        "已放弃 (核心已转储)|已放弃（核心已转储）|已中止 (核心已转储)|已放棄 (核心已傾印)|"
        "Abgebrochen (Speicherabzug|Abandon (core dumped)|Abortado (`core' generado|"
        "варийный останов (образ памяти|中止 (コアダンプ)|Abortado (imagem do núcleo|중지됨 (코어 덤프됨)"
    ),
    "core dumped": (
        "核心已转储|核心已傾印|Speicherabzug geschrieben|core' generado|образ памяти сброшен на диск|"
        "imagem do núcleo gravada|コアダンプ|코어 덤프됨"
    ),
    "Killed": "已杀死|已砍掉|Getötet|Processus arrêté|Terminado (killed)|Ucciso|強制終了",
    " Killed  ": " 已杀死  | 已砍掉  | Getötet  | Processus arrêté  | Terminado (killed)  | Ucciso  ",
}
"""Messages of which patterns are made, and what stands in their place in Chinese, German, French and so on.

What Python, Java and kernels print is English everywhere.
"""
_WHOLE: Final = "Killed"
"""A message that is a word of others too, and counts where it is all that a pattern has."""
_MESSAGE: Final = re.compile(
    "|".join([rf"\A{_WHOLE}\Z", *map(re.escape, sorted(_MESSAGES.keys() - {_WHOLE}, key=len, reverse=True))])
)
_WORDS: Final = re.compile(r"(<[^<>|]*\|[^<>]*>|\{[^{}]*\}|`[^`]*`)")
"""A part of a pattern that stands for other texts than its own."""


def translate(text: str) -> str:
    """Return a pattern that finds a message in other languages too."""
    if not _MESSAGE.search(text):
        return text
    return "".join(_translate(part) for part in _WORDS.split(text))


def _translate(part: str) -> str:
    if part.startswith("<") and part.endswith(">"):
        words = part[1:-1].split("|")
        return f"<{'|'.join([*words, *(said for word in words for said in _list(word))])}>"
    if part.startswith(("{", "`")):
        return part
    return _MESSAGE.sub(lambda found: f"<{found[0]}|{_MESSAGES[found[0]]}>", part)


def _list(word: str) -> list[str]:
    return [
        word.replace(found[0], said) for found in _MESSAGE.finditer(word) for said in _MESSAGES[found[0]].split("|")
    ]
